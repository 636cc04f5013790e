"""What a partitioned function keeps for each signature (types) of its arguments."""
