"""Saving in the background: what it costs, and what survives a kill."""
