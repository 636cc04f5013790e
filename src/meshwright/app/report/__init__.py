"""The report: one HTML page about a plan on a machine, and its trace events."""
