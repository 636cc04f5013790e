"""Layouts of a program's values, chosen by the compiler's estimates or by measurement."""
