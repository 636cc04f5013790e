"""The report: one HTML page about a plan on a machine, and its trace events."""

from meshwright.app.report.page import make_page, write_report

__all__ = ["make_page", "write_report"]
