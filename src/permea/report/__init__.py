"""Plots and the report: one HTML file that opens anywhere, without a network."""

from permea.report.content import Accuracy, Chart, Report, Samples, Series
from permea.report.page import render, write_html

__all__ = ["Accuracy", "Chart", "Report", "Samples", "Series", "render", "write_html"]
