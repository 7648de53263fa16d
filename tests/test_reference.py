"""The reference: every public name is in it, and says what it is in a sentence and an example."""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path
from types import ModuleType

from sphinx.pycode import ModuleAnalyzer

import cabai

DOCS = Path(__file__).parent.parent / "docs"
sys.path.insert(0, str(DOCS))
from site_parts import FENCE, members, public_names  # noqa: E402

NAMES = public_names()
REFERENCE = (DOCS / "reference.md").read_text(encoding="utf-8")


def documented() -> dict[str, str]:
    """The docstring of every public name, and of the methods and properties of classes."""
    found = {}
    for name, value in NAMES.items():
        is_data = not (inspect.isclass(value) or inspect.isroutine(value) or isinstance(value, ModuleType))
        found[name] = comment_of(name) if is_data else inspect.getdoc(value) or ""
        if inspect.isclass(value):
            for member in members(value):
                found[f"{name}.{member}"] = inspect.getdoc(inspect.getattr_static(value, member)) or ""
    return found


def comment_of(name: str) -> str:
    """What is written above a constant, which has no docstring."""
    room, _, constant = name.partition(".")
    module = getattr(cabai, room)
    for place in (module.__name__, f"{module.__name__}.base"):
        comments = ModuleAnalyzer.for_module(place).find_attr_docs()
        if ("", constant) in comments:
            return "\n".join(comments["", constant]).strip()
    return ""


def test_every_public_name_is_in_the_reference_and_in_help_once():
    """A method that the reference leaves out is for compiled code or subclasses, and exists."""
    listed = [name for block in FENCE.findall(REFERENCE) for name in block[1].split()]
    assert sorted(listed) == sorted(cabai.__all__)  # what is in a module among them comes with it
    groups = cabai.__doc__.partition("\n\n")[2]
    listed = [name for line in groups.splitlines() for name in line.partition(":")[2].split()]
    assert sorted(listed) == sorted(cabai.__all__)
    assert len(listed) <= 36
    from site_parts import INNER

    for name, hidden in INNER.items():
        assert {
            each for each in hidden if not hasattr(getattr(cabai, name, None) or getattr(cabai.results, name), each)
        } == set()


def test_what_it_is_stands_in_one_sentence_and_an_example():
    for name, text in documented().items():
        summary = " ".join(text.partition("\n\n")[0].split())
        assert summary, f"{name} has no docstring"
        assert summary[-1] in ".?:", name
        assert not re.search(r"[.?!] [A-Z`]", summary), summary
        assert len(summary) <= 150, summary
    for name, text in documented().items():
        assert is_shown(name, NAMES.get(name), text), name


def is_shown(name: str, value: object, text: str) -> bool:
    if inspect.isclass(value) and issubclass(value, Warning):
        return "A warning of `" in text
    if inspect.isclass(value) and issubclass(value, Exception):
        return "Raised by " in text or ">>>" in text
    if isinstance(value, ModuleType):
        return any(each.startswith(f"{name}.") for each in NAMES)  # their examples are its own
    if value is None:  # a method or property: its own example, or the one of its class
        owner, _, member = name.rpartition(".")
        of_class = "\n".join(inspect.cleandoc(each.__doc__ or "") for each in NAMES[owner].__mro__)
        lines = re.findall(r"^(?:>>>|\.\.\.) (.*)", of_class, re.MULTILINE)
        return ">>>" in text or any(re.search(rf"\.{member}\b", line) for line in lines)
    return ">>>" in text or not (inspect.isclass(value) or inspect.isroutine(value))
