"""Read files, with errors in one line, and write them atomically: completely or not at all."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cabai.support.validation import InvalidInput


@contextmanager
def reading(path: str | Path) -> Iterator[None]:
    """Errors of reading a file inside are what is wrong with it."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise InvalidInput(f"cannot read {path}: it is not a text file in UTF-8 ({error.reason}).") from error
    except OSError as error:
        raise InvalidInput(f"cannot read {path}: {error.strerror or error}.") from error


def write_whole(path: str | Path, content: bytes) -> Path:
    """Write a file atomically, via a temporary name. Creates its folder if needed."""
    target = file_to_write(path)
    partial = target.with_name(f".{secrets.token_hex(8)}.partial")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            with partial.open("xb") as file:  # never follow a link that someone else has put there
                if target.exists():
                    os.chmod(partial, stat.S_IMODE(target.stat().st_mode))
                file.write(content)
            partial.replace(target)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise InvalidInput(f"cannot write {path}: {error.strerror or error}.") from error
    return Path(path)


def file_to_write(path: str | Path) -> Path:
    """Resolve a path to the file to write, which may not exist yet. A link is resolved to its target.

    Refuses anything but a regular file, because it would be replaced by one: a folder, a device, a pipe, a link to a
    file that does not exist. Call this before long work whose result will be written.
    """
    if not str(path) or "\0" in str(path):
        raise InvalidInput(f"a file's name must not be empty or contain NUL, got {str(path)!r}.")
    given = Path(path)
    try:
        if given.is_symlink() and not given.exists():
            raise InvalidInput(f"cannot write {path}: it is a link to {os.readlink(given)}, which does not exist.")
        if given.is_dir():
            raise InvalidInput(f"cannot write {path}: it is a folder.")
        if given.exists() and not given.is_file():
            raise InvalidInput(f"cannot write {path}: it is a device or a pipe, not a regular file.")
        target = Path(os.path.realpath(given))
        folder = next(each for each in target.parents if each.exists())
        if not folder.is_dir():
            raise InvalidInput(f"cannot write {path}: {folder} is not a folder.")
        if not os.access(folder, os.W_OK | os.X_OK):
            raise InvalidInput(f"cannot write {path}: you may not write in {folder}.")
        return target
    except OSError as error:
        raise InvalidInput(f"cannot write {path}: {error.strerror or error}.") from error
