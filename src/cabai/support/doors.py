"""What a room may use of a room below it, without knowing that room: `cabai` itself says here what it is."""

from __future__ import annotations

import importlib
from typing import Any

DOORS: dict[str, str] = {}  # what is needed: `module:name`


def through(door: str) -> Any:
    """What is behind a door, imported now."""
    module, _, name = DOORS[door].partition(":")
    return getattr(importlib.import_module(module), name)
