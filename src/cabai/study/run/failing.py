"""Why a test raised an exception: a failed trial, which is repeated, or a bug in the test, which ends the run."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any

from cabai.support.own import PACKAGE
from cabai.support.validation import InvalidInput, shown

# What Python raises if a program has a bug: every trial would raise it again.
PROGRAM = (
    NameError, AttributeError, TypeError, ImportError, SyntaxError, AssertionError, NotImplementedError, RecursionError,
)  # fmt: skip

Caught = tuple[type[Exception], ...] | None


def checked_catch(catch: Any) -> Caught:
    """The exceptions that count as failed trials, as given; None for the default ones."""
    if catch is None:
        return None
    given = tuple(catch) if isinstance(catch, (tuple, list, set, frozenset)) else (catch,)
    for each in given:
        if not isinstance(each, type) or not issubclass(each, Exception):
            raise InvalidInput(f"catch must be exception classes, such as (OSError, ValueError), got {shown(each)}.")
    return given


def is_of_the_trial(error: BaseException, caught: Caught) -> bool:
    """Whether this exception is a failed trial, so that another trial may succeed."""
    if caught is not None and isinstance(error, caught):
        return True
    if isinstance(error, BaseExceptionGroup):
        return all(is_of_the_trial(each, caught) for each in error.exceptions)
    if caught is not None or not isinstance(error, Exception) or isinstance(error, PROGRAM):
        return False
    return type(error).__module__.partition(".")[0] != "cabai"  # cabai itself was called in a wrong way


def blame(error: Exception, arm: str, caught: Caught) -> None:
    """Add a note to the error: why it ended the run, and what to do if it should not."""
    named = [each.__name__ for each in (OSError,) if caught is None] + [each.__name__ for each in caught or ()]
    named += [type(error).__name__]
    error.add_note(
        f"{BLAME} arm {arm!r}, not a failed trial: it is not tried again. Its pull was released, and what it may have "
        f"cost is not on the bill. If a trial may fail like this, name the error: catch=({', '.join(named)})."
    )


BLAME = "cabai: this is an error in the test of"


def is_blamed(error: BaseException) -> bool:
    """Whether it was a test that raised this."""
    return any(note.startswith(BLAME) for note in getattr(error, "__notes__", ()))


def without_ours(error: BaseException) -> TracebackType | None:
    """Its traceback from the first frame that is not cabai's."""
    place = error.__traceback__
    while place is not None and Path(place.tb_frame.f_code.co_filename).is_relative_to(PACKAGE):
        place = place.tb_next
    return place or error.__traceback__
