"""The integer program of one mesh: records, builder, and choices found elsewhere."""
