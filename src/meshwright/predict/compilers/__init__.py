"""What XLA's compilers make of a device program, by target."""
