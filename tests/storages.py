"""Storages for tests that need more than one in memory; the fixture `url` is a new one, and is told which."""

from __future__ import annotations

import pytest

from cabai.study import storage

BOTH = pytest.mark.parametrize("url", ["sqlite", "postgresql"], indirect=True)
POSTGRES = pytest.mark.parametrize("url", ["postgresql"], indirect=True)


def close(prefix: str) -> None:
    """Close the storages whose URL or file begins so."""
    for key in [key for key in storage._opened if key.startswith(prefix)]:
        storage._opened.pop(key).engine.dispose()
