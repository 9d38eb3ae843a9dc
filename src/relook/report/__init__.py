"""The report of a run: one HTML page and the figures of a paper, drawn from its files alone."""

from relook.report.page import write_report

__all__ = ["write_report"]
