"""Tree search: a plan from cuts of inputs alone (after automap)."""
