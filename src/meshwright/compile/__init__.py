"""What becomes of a program below its plan: choices of the compiler, and devices."""
