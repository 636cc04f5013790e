"""A program on a design: layer by layer, and values that stay on the chip."""
