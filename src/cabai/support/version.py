"""The version of cabai."""

__version__ = "0.1.0"
