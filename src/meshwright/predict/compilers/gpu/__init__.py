"""XLA's GPU compiler: its pipeline."""
