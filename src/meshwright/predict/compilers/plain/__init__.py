"""A compiler of no particular machine: its pipeline."""
