"""Steps compiled by the real TPU compiler, compared with our predictions."""
