"""The documentation says what happens: its examples run, and print what is shown below them. The reference has every
public name, and says what it is in a sentence and an example."""

from __future__ import annotations

import contextlib
import doctest
import inspect
import io
import re
import shlex
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from sphinx.pycode import ModuleAnalyzer

import cabai
from shell import here

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
sys.path.insert(0, str(DOCS))
from site_parts import FENCE, INNER, members, public_names  # noqa: E402

PAGES = [page for page in [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))] if page.exists()]
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def blocks(page: Path, language: str) -> list[tuple[int, str]]:
    """The fenced blocks of a language in a page, each with the number of its first line, counted from 0."""
    text = page.read_text(encoding="utf-8")
    fences = re.finditer(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [(text.count("\n", 0, fence.start(1)), fence[1]) for fence in fences]


def sessions(page: Path) -> list[tuple[int, list[tuple[str, str]]]]:
    """A page's console blocks: the line of each, and its commands after a `$` with the output shown below them."""
    found = []
    for line, block in blocks(page, "console"):
        parts = re.finditer(r"^\$ ((?:.*\\\n)*.*)\n?((?:(?!\$ ).*(?:\n|\Z))*)", block, re.MULTILINE)
        found.append((line, [(part[1].replace("\\\n", " "), part[2]) for part in parts]))
    return found


def scripts(page: Path) -> list[tuple[int, str, str]]:
    """A page's Python blocks without prompts that are directly followed by a text block, which is what they print."""
    text = page.read_text(encoding="utf-8")
    pairs = re.finditer(r"^```python\n((?:(?!```).*\n)*)```\n\n```text\n((?:(?!```).*\n)*)```$", text, re.MULTILINE)
    return [(text.count("\n", 0, pair.start(1)), pair[1], pair[2]) for pair in pairs if ">>>" not in pair[1]]


def run(command: str, folder: Path) -> tuple[int, str]:
    """A command's exit code and what it prints, errors included. `cabai` and `python` are those that run this test."""
    program, *arguments = shlex.split(command)
    if program == "cabai":
        done = here(*arguments, cwd=folder)
    else:
        assert program == "python"
        done = subprocess.run([sys.executable, *arguments], cwd=folder, capture_output=True, text=True, timeout=300)
    return done.returncode, done.stdout + done.stderr


LONG = "cabai calibrate", "cabai reproduce", "python demo/"  # commands that take more than a few seconds
SESSIONS = [
    pytest.param(
        [each for each in session if each[0].split()[0] in ("cabai", "python")],
        id=f"{page.name}:{line + 1}",
        marks=pytest.mark.slow if any(each[0].startswith(LONG) for each in session) else (),
    )
    for page in PAGES
    for line, session in sessions(page)
    if any(command.split()[0] in ("cabai", "python") for command, _ in session)
]
LESSONS = [page for page in PAGES if any(">>>" in block for _, block in blocks(page, "python"))]
SCRIPTS = [
    pytest.param(script, output, id=f"{page.name}:{line + 1}")
    for page in PAGES
    for line, script, output in scripts(page)
]


@pytest.mark.parametrize("page", LESSONS, ids=lambda page: page.name)
def test_python_examples_give_what_the_page_shows(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    (tmp_path / "docs").symlink_to(DOCS)
    parser, report = doctest.DocTestParser(), []
    names: dict[str, object] = {"__name__": "__main__"}  # one page, one interpreter
    run_before = {line for line, _, _ in scripts(page)}
    for line, block in blocks(page, "python"):
        if line in run_before:  # the reader has run it, and goes on with its names
            with contextlib.redirect_stdout(io.StringIO()):
                exec(block, names)
        elif ">>>" in block:
            example = parser.get_doctest(block, names, page.name, str(page), line)
            doctest.DocTestRunner(optionflags=FLAGS).run(example, out=report.append, clear_globs=False)
            names = example.globs
    assert not report, "".join(report)


@pytest.mark.parametrize(("script", "output"), SCRIPTS)
def test_scripts_print_what_the_page_shows(script, output, tmp_path):
    (tmp_path / "script.py").write_text(script, encoding="utf-8")
    code, printed = run("python script.py", tmp_path)
    assert code == 0, printed
    assert doctest.OutputChecker().check_output(output, printed, FLAGS), printed


@pytest.mark.parametrize("name", ["README.md", "docs/study.md", "docs/datasets.md"])
def test_the_first_example_can_be_copied_and_run(name):
    """Prompts would be copied as well."""
    first = re.search(r"^```python\n", (ROOT / name).read_text(encoding="utf-8"), re.MULTILINE)
    assert first is not None
    line = (ROOT / name).read_text(encoding="utf-8").count("\n", 0, first.end())
    assert line in [each[0] for each in scripts(ROOT / name)]


def test_the_docs_are_short_enough_to_be_read_and_mean_the_same_to_every_reader():
    """TeX reads `\frac12` as a half, the site as 12 over what follows. What is added takes the place of something: see
    CONTRIBUTING.md."""
    for page in PAGES:
        assert re.findall(r"\\[dt]?frac\s*\d\d", page.read_text(encoding="utf-8")) == [], page
    for page in PAGES:
        shown = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", page.read_text(encoding="utf-8"))
        assert [name for name in shown if not (page.parent / name).is_file()] == [], page
    guide = [page for page in DOCS.rglob("*.md") if "theory" not in page.parts]
    assert words(guide) <= 9_500
    assert words([*DOCS.rglob("*.md")]) <= 19_000


@pytest.mark.parametrize("session", SESSIONS)
def test_commands_print_what_the_page_shows(session, tmp_path):
    (tmp_path / "docs").symlink_to(DOCS)
    for command, output in session:  # those of one block run in one folder, one after another
        code, printed = run(command, tmp_path)
        if output.strip():
            assert doctest.OutputChecker().check_output(output, printed, FLAGS), f"{command}\nprinted:\n{printed}"
        else:  # where no output is shown, it is enough that the command succeeds
            assert code == 0, f"{command}\nprinted:\n{printed}"


def test_the_example_policy_runs():
    done = subprocess.run(
        [sys.executable, DOCS / "examples" / "own_policy.py"], capture_output=True, text=True, timeout=300
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "closest-rival" in done.stdout


def test_the_study_file_of_the_page_runs(tmp_path):
    page = DOCS / "study.md"
    (tmp_path / "judges.toml").write_text(blocks(page, "toml")[0][1])
    (tmp_path / "judge.py").write_text(next(block for _, block in blocks(page, "python") if "sys.argv" in block))
    done = here("run", "judges.toml", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert "within 0.02 of the largest mean, wrong with probability at most 0.05" in done.stdout
    assert (tmp_path / "cabai.db").is_file()


def outside_code(page: Path) -> str:
    """A page's text without its blocks of code."""
    return re.sub(r"^ *(```+).*?^ *\1 *$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """What forges and the site call a page's headings."""
    found: list[str] = []
    for heading in re.findall(r"^#+ +(.+?) *#*$", outside_code(page), re.MULTILINE):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        name = re.sub(r"[^\w\- ]", "", words.lower()).replace(" ", "-")
        again = sum(each == name or re.fullmatch(rf"{re.escape(name)}-\d+", each) is not None for each in found)
        found.append(f"{name}-{again}" if again else name)
    return set(found)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page):
    text = re.sub(r"`[^`\n]*`", "", outside_code(page))
    links = [link for link in re.findall(r"\]\(([^)\s]+)[^)]*\)", text) if not re.match(r"[a-z]+:", link)]
    missing = []
    for link in links:
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            missing.append(link)
    assert missing == []


def words(pages: list[Path]) -> int:
    """What `wc -w` counts, code and output included."""
    return sum(len(page.read_text(encoding="utf-8").split()) for page in pages)


# --- The reference


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
