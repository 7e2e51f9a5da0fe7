"""Learn from data that may not leave its owner."""

from permea._version import __version__

__all__ = ["__version__"]
