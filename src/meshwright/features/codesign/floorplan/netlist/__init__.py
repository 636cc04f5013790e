"""Netlists, canvases and placements of chips, in the formats of Circuit Training."""
