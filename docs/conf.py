"""Sphinx configuration."""

import os
import sys
from pathlib import Path

from permea import __version__

os.environ["PERMEA_PROGRESS"] = "0"
HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

project = "permea"
copyright = "the permea authors"
release = version = __version__
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "numpydoc",
    "sphinx_gallery.gen_gallery",
]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = ["_build", "gallery", "auto_gallery/**/*.ipynb", "auto_gallery/**/*.py"]
myst_enable_extensions = ["dollarmath", "amsmath", "colon_fence"]
myst_heading_anchors = 3
autosummary_generate = True
suppress_warnings = ["ref.ref"]  # labels inside docstrings inherited from scikit-learn
numpydoc_show_class_members = False
templates_path = ["_templates"]
html_theme = "furo"
html_title = f"permea {version}"
html_theme_options = {"footer_icons": []}
sphinx_gallery_conf = {
    "examples_dirs": "gallery",
    "gallery_dirs": "auto_gallery",
    "filename_pattern": "/plot_",
    "download_all_examples": False,
    "show_memory": False,
    "abort_on_example_error": True,
}


def setup(app):
    """Draw the figures of the benchmarks, and write the pages of commands and of the HTTP API."""
    from benchmarks.figures import draw_all
    from scripts import command_reference, http_reference

    draw_all(HERE / "figures")
    for reference in (command_reference, http_reference):
        reference.PAGE.write_text(reference.drawn())
