"""Passes of the TPU compiler."""
