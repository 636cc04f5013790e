"""A plan's figures beside those of the real compiler."""
