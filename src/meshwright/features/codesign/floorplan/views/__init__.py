"""Placements as text, files, pictures and pages."""
