"""Plots and the report: one HTML file that opens anywhere, without a network."""

from permea.report.assessment import Assessment, assess, write_assessment
from permea.report.content import Accuracy, Chart, Report, Samples, Series
from permea.report.model_card import model_card, write_model_card
from permea.report.page import render, write_html

__all__ = [
    "Accuracy",
    "Assessment",
    "Chart",
    "Report",
    "Samples",
    "Series",
    "assess",
    "model_card",
    "render",
    "write_assessment",
    "write_html",
    "write_model_card",
]
