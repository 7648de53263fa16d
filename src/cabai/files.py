"""Files that appear whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from cabai.checks import InvalidInput


def write_whole(path: Path, content: bytes) -> Path:
    """Write a file under another name first, so that nobody ever meets half of it; make its folder if need be."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    if path.parent.exists() and not path.parent.is_dir():
        raise InvalidInput(f"cannot write {path}: {path.parent} is not a folder.")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            partial.write_bytes(content)
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise InvalidInput(f"cannot write {path}: {error.strerror or error}.") from error
    return path
