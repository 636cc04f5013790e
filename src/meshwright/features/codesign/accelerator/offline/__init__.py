"""Designs learned from logs alone: readers of logs, a surrogate, and its optimisation.

The simulator is never called. The method is PRIME's (Kumar et al., "Data-Driven Offline
Optimization for Architecting Hardware Accelerators", ICLR 2022). Begin reading at
`learn.py`.

    tfrecord     records of a TFRecord file, and the `tf.train.Example` in each
    design_logs  logged designs as arrays, from our CSV files or published TFRecords
    training_set logs of several applications, scaled, with some held out
    network      the surrogate: merit and area of a design for an application
    conservative the steps that train it, with negatives found against it
    surrogate    training with checkpoints; the checkpoint that ranks best
    propose      the surrogate's best designs within an area
    learn        all of this, from a folder of logs to a design
"""
