"""Estimates by which engines choose: of costs, of improvement, of densities of codes."""
