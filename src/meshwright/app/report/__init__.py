"""A page about a plan on a machine, as one HTML file that needs nothing else."""

from meshwright.app.report.page import make_page, write_report

__all__ = ["make_page", "write_report"]
