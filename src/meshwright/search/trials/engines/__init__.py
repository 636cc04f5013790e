"""Engines of trials: one algorithm per file, all driven by `running/run.py`.

A new one is a new file with a frozen record that satisfies `engine.TrialEngine`, and an
entry in `by_name.py`.
"""
