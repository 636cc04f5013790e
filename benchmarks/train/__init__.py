"""Data and weights that ship with the package: these scripts overwrite them."""
