"""Memory of one device: live ranges, buffer assignment, packing."""
