"""Searches that do not know what they search: problems, engines, integer programs."""
