"""A study that is created over HTTP: settings only, never anything that the server would import, run or open."""

from __future__ import annotations

from cabai.datasets.dataset import EACH, WHOLE, Dataset
from cabai.server.requests import MOST_SCORES, Create
from cabai.study import Study
from cabai.study.create import described, open_study
from cabai.support.validation import InvalidInput, shown


def create(asked: Create, storage: str, request: str | None) -> Study:
    """Create a study, or load it; the same `request` finds what it has created."""
    given = asked.model_dump(exclude={"digest"})
    for kind in ("family", "policy", "threshold"):
        if given[kind] is not None and not is_plain(given[kind]):
            raise InvalidInput(
                f"{kind} must be one of cabai's own, got {shown(given[kind])}: a server runs no code that a request "
                "names, and opens no file. Create the study on the server's side; then it can be asked, told and "
                "watched from here."
            )
    items = given["items"]
    count = len(items) if isinstance(items, list) else items if isinstance(items, int) else 0
    if count * len(asked.arms) > MOST_SCORES:
        raise InvalidInput(
            f"over HTTP, arms times items may be at most {MOST_SCORES}, got {len(asked.arms)} times {count}: create "
            "the study on the server's side."
        )
    if asked.digest is not None and count:
        ids = tuple(items) if isinstance(items, list) else None
        if len(asked.digest) > WHOLE + EACH * len(ids or ()):
            raise InvalidInput(f"digest must be the fingerprint of these {count} items, got {shown(asked.digest)}.")
        given["items"] = Dataset(range(count), ids, asked.digest)
    name, load_if_exists = given.pop("name"), given.pop("load_if_exists")
    return open_study(name, *described(**given), storage, load_if_exists=load_if_exists, request=request)


def is_plain(text: str) -> bool:
    """Whether a name refers to nothing that would be imported or opened: no `module:name`, no path."""
    return not any(mark in text for mark in ":/\\\0") and not text.strip().endswith(".json")
