"""Examples for newcomers."""
