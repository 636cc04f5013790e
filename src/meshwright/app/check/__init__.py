"""The original and the partitioned program side by side, on virtual devices."""
