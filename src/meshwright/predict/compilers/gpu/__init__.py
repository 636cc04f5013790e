"""Model of XLA's GPU compiler: its pipeline, and the passes that only it has."""
