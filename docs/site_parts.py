"""What a build adds to the pages: the reference of names and of commands, formulas without a script, and links.

A page has a block `{api}` with public names, a block `{commands}`, or a block `{settings}` with a place of the table of
settings. A build puts there what the docstrings, `--help` or the table say now: so no copy is out of date. The sidebar
lists what index.md lists below "All pages".
"""

from __future__ import annotations

import ast
import dataclasses
import html
import inspect
import os
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any
from xml.etree import ElementTree

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.pycode import ModuleAnalyzer
from sphinx.util import logging

import cabai
from cabai.settings import REQUIRED, settings_for
from cabai.support.registry import Named

ROOT = Path(__file__).parent.parent
FENCE = re.compile(r"^```\{(api|commands|settings)\}\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LISTED = re.compile(r"^- (\w+): (\[.*?)(?=^- |^$|\Z)", re.MULTILINE | re.DOTALL)  # pages, below a name for them
ENVIRONMENT = re.compile(r"\\(?:begin|end)\{(?:align|equation|gather)\*?\}")  # rows are rows without them
# TeX takes one digit where braces are left out; docutils takes the whole number.
ONE_DIGIT = re.compile(r"((?:\\[dt]?frac|\\sqrt|[_^])\s*)(\d)(?=\d)")
# An opening bracket stays with the formula behind it, and a full stop with the formula before it.
HELD = re.compile(r"""([(\[]*)(<math xmlns="[^"]*">(?:(?!</math>).)*</math>)([)\].,;:?!]*)""", re.DOTALL)
# What compiled code and subclasses use; docs/own.md says how to write a subclass.
INNER = {
    "Family": {"binding", "call", "drawing", "parameters", "scale", "spread", "tilt", "tilt_ranges", "check_size"},
    "Policy": {"functions", "parameters", "stop", "threshold"},
    "Threshold": {"check_use", "needs_first", "parameters", "pull_equally", "recall"},
    "Instance": {"drawing", "spreads"},
    "Statistics": {"state"},
    "Status": {"state_of", "texts"},
}
MATHML = "http://www.w3.org/1998/Math/MathML"
ACCENTS = ("^", "\u02c6", "~", "\u02dc", "\u00af", "\u203e", "\u02d9")
APPLIED = "\u2061"  # between a function and what it is applied to
ElementTree.register_namespace("", MATHML)
logger = logging.getLogger(__name__)


def public_names() -> dict[str, Any]:
    """Every public name by its shortest path, and what it names: those of cabai, then those of the modules among them.

    >>> "create_study" in public_names(), "datasets.read_table" in public_names(), "datasets.replay" in public_names()
    (True, True, False)
    """
    found = {name: getattr(cabai, name) for name in cabai.__all__}
    for name, module in list(found.items()):
        if isinstance(module, ModuleType):
            inside = {each: getattr(module, each) for each in module.__all__}
            known = [*cabai.__all__, *(cabai.results.__all__ if name != "results" else ())]
            found |= {f"{name}.{each}": value for each, value in inside.items() if each not in known}
    return found


def members(cls: type) -> list[str]:
    """The methods and properties that users of a class call, in the order of its source."""
    if issubclass(cls, BaseException) or (issubclass(cls, Named) and Named not in cls.__bases__):
        return []  # a family, threshold or policy has those of its base class
    named = [*Named.__dict__, *cls.__dict__] if issubclass(cls, Named) else list(cls.__dict__)
    hidden = INNER.get(cls.__name__, set())
    kinds = (property, classmethod, staticmethod)
    return [
        name
        for name in dict.fromkeys(named)
        if not name.startswith("_") and name not in hidden
        and (isinstance(value := inspect.getattr_static(cls, name, None), kinds) or inspect.isfunction(value)
             or hasattr(type(value), "__get__"))
    ]  # fmt: skip


def fields(cls: type) -> Iterator[tuple[str, str]]:
    """The fields of a dataclass that is a result, each with the comment behind it."""
    if not is_result(cls):
        return
    for each in reversed([one for one in cls.__mro__ if dataclasses.is_dataclass(one)]):
        source = textwrap.dedent(inspect.getsource(each))
        lines = source.splitlines()
        for node in ast.parse(source).body[0].body:  # type: ignore[attr-defined]
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                rest = lines[(node.end_lineno or 1) - 1][node.end_col_offset :]
                yield node.target.id, rest.partition("#")[2].strip()


def is_result(cls: type) -> bool:
    """Whether cabai makes such values, so that nobody needs to know how."""
    is_made = dataclasses.is_dataclass(cls) and not issubclass(cls, Named)
    return is_made and cls.__init__.__code__.co_filename == "<string>"  # type: ignore[misc]


def directive(name: str, value: Any) -> str:
    """How autodoc is asked for a name."""
    shorten(value)
    if isinstance(value, ModuleType):
        summary = (inspect.getdoc(value) or "").partition("\n\n")[0]
        parts = [directive(path, each) for path, each in public_names().items() if path.startswith(f"{name}.")]
        return "\n\n".join([f".. py:module:: cabai.{name}\n\n{summary}", *parts])
    kind = "data"
    options = [":no-value:"]
    if inspect.isclass(value):
        kind, options = "class", [f":members: {', '.join(members(value))}"] if members(value) else []
        if issubclass(value, BaseException):
            kind = "exception"
    elif inspect.isroutine(value):
        kind, options = "function", []
    return "\n".join([f".. auto{kind}:: cabai.{name}", *(f"   {option}" for option in options)])


def shorten(value: Any) -> None:
    """Have signatures once, not overloaded, and with arrays that are called so."""
    if inspect.isclass(value) or inspect.isroutine(value):
        analyzer = ModuleAnalyzer.for_module(value.__module__)
        analyzer.analyze()
        analyzer.overloads.clear()
    for each in vars(value).values() if inspect.isclass(value) else [value]:
        function = each.fget if isinstance(each, property) else getattr(each, "__func__", each)
        if inspect.isfunction(function):
            for name, kind in function.__annotations__.items():
                function.__annotations__[name] = re.sub(r"NDArray\[[\w.]+\]", "np.ndarray", str(kind))


def api(names: list[str]) -> str:
    known = public_names()
    return "```{eval-rst}\n" + "\n\n".join(directive(name, known[name]) for name in names) + "\n```"


def settings(place: str) -> str:
    """The settings that a place takes, as a table; for a study file, those that are not of every study."""
    rows = settings_for(place)
    if place == "file":
        rows = {name: row for name, row in rows.items() if name not in settings_for("study")}
    lines = ["| setting | default | what it is |", "|---|---|---|"]
    for name, row in rows.items():
        default = row.default_in(place)
        shown = "required" if default is REQUIRED else "" if default is None else f"`{default!r}`"
        lines.append(f"| `{name}` | {shown} | {html.escape(row.sentence, quote=False)} |")
    return "\n".join(lines)


def commands() -> str:
    """`--help` of every command, as a section each."""
    from typer.main import get_command
    from typer.testing import CliRunner

    from cabai.cli import app

    def all_of(command: Any, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        inner = getattr(command, "commands", {})
        if not inner or path:
            yield path
        for name, each in inner.items():
            yield from all_of(each, (*path, name))

    parts = []
    for path in all_of(get_command(app), ()):
        done = CliRunner().invoke(app, [*path, "--help"], prog_name="cabai", terminal_width=88, catch_exceptions=False)
        assert done.exit_code == 0, done.output
        parts.append(f"## cabai {' '.join(path)}\n\n```text\n{done.output.strip()}\n```")
    return "\n\n".join(parts)


def fill_in(app: Sphinx, page: str, text: list[str]) -> None:
    """The blocks that a build fills in. The README is the first page here; folders of the repository are not shown."""
    folder = Path(app.srcdir, page).parent

    def link(found: re.Match[str]) -> str:
        target = Path(os.path.normpath(folder / found[2].partition("#")[0]))
        if target == ROOT / "README.md":
            return f"[{found[1]}]({os.path.relpath(Path(app.srcdir, 'index.md'), folder)})"
        return found[1] if target.is_dir() else found[0]

    makers = {"api": lambda given: api(given.split()), "commands": lambda _: commands(), "settings": settings}
    made = FENCE.sub(lambda fence: makers[fence[1]](fence[2].strip()), text[0])
    text[0] = re.sub(r"\[([^\]]+)\]\(((?:\.\./)+[^)\s]*)\)", link, made)
    if page == "index":
        text[0] += sidebar(text[0].partition("## All pages")[2])


def sidebar(listed: str) -> str:
    """The sidebar, from lists of links to pages."""
    return "".join(
        "\n".join(
            ["\n```{toctree}", f":caption: {name}", ":hidden:", *re.findall(r"\(([\w/-]+)\.md\)", links), "```\n"]
        )
        for name, links in LISTED.findall(listed)
    )


def add_fields(app: Sphinx, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    """Below a result's description, its fields; and pages that a docstring names become links."""
    lines[:] = [re.sub(r"docs/([\w/-]+)\.md", r":doc:`\1`", line) for line in lines]
    if what == "class":
        listed = list(fields(value))
        if listed:
            example = next((i for i, line in enumerate(lines) if line.startswith(">>>")), len(lines))
            names = ", ".join(f"`{field}`" for field, _ in listed)
            said = [f"- `{field}`: {comment}" for field, comment in listed if comment]
            lines[example:example] = ["", f"Fields: {names}.", "", *said, ""]


def without_signature(app: Sphinx, what: str, name: str, value: Any, options: Any, signature: Any, returns: Any) -> Any:
    """What nobody calls has none: results and studies."""
    if what == "class" and (is_result(value) or value is cabai.Study):
        return "", None
    short = None if signature is None else signature.replace(" | None = None", " = None")
    return short, returns


def set_well(mathml: str) -> str:
    """The same formula: the index of a letter with an accent is beside it, not below, and `log t` has a space."""
    plain = re.sub(r"&(?!(?:lt|gt|amp);)\w+;", lambda entity: html.unescape(entity[0]), mathml)
    tree = ElementTree.fromstring(plain)
    for parent in list(tree.iter()):
        for place, node in enumerate(parent):
            if node.text == APPLIED and place + 1 < len(parent) and parent[place + 1].tag != f"{{{MATHML}}}mo":
                node.set("rspace", "0.17em")
            if node.tag == f"{{{MATHML}}}munderover" and node[2].text in ACCENTS:
                letter, index, accent = node
                beside = ElementTree.Element(f"{{{MATHML}}}msub")
                over = ElementTree.SubElement(beside, f"{{{MATHML}}}mover", accent="true")
                over.extend([letter, accent])
                beside.append(index)
                beside.tail = node.tail
                parent[place] = beside
    return ElementTree.tostring(tree, encoding="unicode")


def as_in_tex(tex: str) -> str:
    r"""The same formula with braces around a first argument of one digit, where another digit follows.

    >>> print(as_in_tex(r"\frac12\log N+\frac RN+x^10"))
    \frac{1}2\log N+\frac RN+x^{1}0
    """
    return ONE_DIGIT.sub(r"\1{\2}", tex)


def hold_together(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """No line breaks between a bracket or a full stop and the formula next to it."""

    def whole(found: re.Match[str]) -> str:
        return f'<span class="whole">{found[0]}</span>' if found[1] or found[3] else found[0]

    if "body" in context:
        context["body"] = HELD.sub(whole, context["body"])


def as_mathml(tex: str, *, as_block: bool = False) -> str:
    """A formula as MathML, which browsers show without a script."""
    return set_well(tex2mathml(as_in_tex(ENVIRONMENT.sub("", tex)), as_block=as_block))


def formula(self: Any, node: nodes.Element, *, as_block: bool) -> None:
    try:
        made = as_mathml(node.astext(), as_block=as_block)
    except MathError as error:
        logger.warning("cannot show the formula %s: %s", node.astext(), error, location=node)
        made = node.astext()
    self.body.append(f'<div class="math">{made}</div>' if as_block else made)
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("source-read", fill_in)
    app.connect("html-page-context", hold_together)
    app.connect("autodoc-process-docstring", add_fields)
    app.connect("autodoc-process-signature", without_signature)
    app.add_html_math_renderer(
        "mathml",
        (lambda self, node: formula(self, node, as_block=False), None),
        (lambda self, node: formula(self, node, as_block=True), None),
    )
    return {"parallel_read_safe": True, "parallel_write_safe": True}
