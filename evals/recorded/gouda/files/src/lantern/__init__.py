"""Small character models of old correspondence."""

__version__ = "0.4.1"
