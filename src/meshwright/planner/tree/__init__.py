"""Tree search for a plan that is made of shardings of inputs alone (after automap)."""
