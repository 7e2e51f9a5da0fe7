"""Minima over layers, branches and classes, written once for every model family."""
