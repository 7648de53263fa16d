"""The shell."""

from cabai.cli.main import app, main

__all__ = ["app", "main"]
