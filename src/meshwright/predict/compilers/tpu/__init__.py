"""XLA's TPU compiler (libtpu): its pipeline, and the passes and policies of its own."""
