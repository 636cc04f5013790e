"""Layouts of a program's values, chosen by its compiler's own estimates or by measurement."""
