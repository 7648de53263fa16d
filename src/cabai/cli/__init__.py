"""The command line."""

from cabai.cli.main import app, main

__all__ = ["app", "main"]
