"""Model of XLA's CPU compiler: its pipeline, and the passes that only it has."""
