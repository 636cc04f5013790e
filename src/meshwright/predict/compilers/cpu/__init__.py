"""XLA's CPU compiler: its pipeline, and the passes and policies of its own."""
