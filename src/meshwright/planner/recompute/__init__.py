"""What to keep for the backward pass, and what to recompute."""
