"""The rooms of the house: each uses the rooms above it only, lazily or not, and no two modules use each other."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import cabai
from plant import FAULTS

PACKAGE = Path(cabai.__file__).parent
ROOMS = [  # from the top; each may use those before it, and itself
    "errors", "support", "views", "plots", "families", "core", "instance", "thresholds", "policies", "bound", "prices",
    "datasets", "settings", "simulation", "calibration", "bench", "study", "planning", "results", "inspect", "paper",
    "server", "cli",
]  # fmt: skip
ROOM_OF = {
    "hardness": "bound",
    "interrupts": "support",
    "__main__": "cli",
    "quick": "cli",
    "printed": "cli",
}


def modules() -> dict[str, ast.Module]:
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        name = ".".join(("cabai", *parts)).removesuffix(".__init__")
        found[name] = ast.parse(path.read_text(encoding="utf-8"))
    return found


def imports(tree: ast.Module, known: set[str]) -> set[str]:
    """The modules of cabai that a module imports anywhere, except for type checkers."""
    typing_only = {
        id(node)
        for branch in ast.walk(tree)
        if isinstance(branch, ast.If) and ast.unparse(branch.test) == "TYPE_CHECKING"
        for node in ast.walk(branch)
    }
    found: set[str] = set()
    for node in ast.walk(tree):
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.startswith("cabai")}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("cabai"):
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found.add(inner if inner in known else str(node.module))
    return found


def room(module: str) -> str:
    first = [*module.split("."), ""][1]
    return ROOM_OF.get(first, first)


TREES = modules()
GRAPH = {name: imports(tree, set(TREES)) - {name} for name, tree in TREES.items()}


def test_no_module_uses_a_room_below_its_own():
    assert {room(name) for name in TREES if name != "cabai"} <= set(ROOMS)
    wrong = [
        (name, used)
        for name, uses in GRAPH.items()
        if name != "cabai"  # it lists the names of all rooms
        for used in uses
        if ROOMS.index(room(used)) > ROOMS.index(room(name))
    ]
    assert wrong == []


def test_modules_import_each_other_in_no_circle():
    """Nor lazily: a circle means that two files are one idea."""
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, " -> ".join((*path[path.index(name) :], name))
        if name in done:
            return
        for used in sorted(GRAPH.get(name, ())):
            visit(used, (*path, name))
        done.add(name)

    for name in GRAPH:
        visit(name, ())


def test_one_default_everywhere():
    """What was simulated is what runs, without naming anything: in Python, in the shell and in studies."""
    from typer.main import get_command

    from cabai import cli, policies, thresholds
    from cabai.simulation import simulating

    commands = get_command(cli.app).commands
    commands |= commands["study"].commands
    found = {"policy": [], "threshold": []}
    for function in (cabai.simulate, cabai.compare, cabai.calibrate, cabai.create_study):
        for name, parameter in inspect.signature(function).parameters.items():
            found.get(name, []).append(parameter.default)
    for command in ("simulate", "compare", "calibrate", "create"):
        for parameter in commands[command].params:
            found.get(parameter.name, []).append(parameter.default)
    assert found == {"policy": [policies.DEFAULT] * 6, "threshold": [None] * 6}
    families = {name: cabai.families.family_of(name) for name in cabai.families.FAMILIES.names}
    defaults = {name: thresholds.threshold_of(None, family) for name, family in families.items()}
    assert all(threshold.is_proven_for(name) for name, threshold in defaults.items())
    assert {name: str(threshold) for name, threshold in defaults.items()} == {
        **dict.fromkeys(("gaussian", "bernoulli", "poisson", "exponential"), "contrast"), "bounded": "bets",
    }  # fmt: skip
    of_three = {name: str(thresholds.threshold_of(None, family, 3)) for name, family in families.items()}
    assert of_three == dict.fromkeys(defaults, "champion")
    assert simulating.POLICIES[0] == policies.DEFAULT


def test_nothing_that_tools_leave_behind_is_committed():
    """Nothing that .gitignore names, and no folder of a tool that it forgets."""
    root = Path(__file__).parent.parent
    if not (root / ".git").exists():
        pytest.skip("not a clone")
    listed = ["git", "-C", str(root), "ls-files"]
    committed = subprocess.run(listed, capture_output=True, text=True, check=True).stdout.split("\n")
    hidden = {name.partition("/")[0] for name in committed if name.startswith(".") and "/" in name}
    assert hidden <= {".ci", ".github"}
    assert subprocess.run([*listed, "-ci", "--exclude-standard"], capture_output=True, text=True).stdout == ""


def test_the_table_of_slots_is_what_the_source_says(monkeypatch):
    from cabai.support.specialise import SLOTS

    monkeypatch.syspath_prepend(str(Path(__file__).parent.parent / "docs"))
    import slots as module

    assert module.PAGE.read_text() == module.page(), "run: python docs/slots.py"
    listed = module.table()
    assert [name for name in SLOTS if f"|`{name}`|" not in listed and not name.startswith(module.INNER)] == []


def test_every_planted_fault_applies_and_names_tests_that_are_there():
    """Else `python tests/plant.py` would plant less than it says."""
    assert [f"{fault.file}: {fault.old}" for fault in FAULTS if not fault.applies] == []
    for file, _, test in (name.partition("::") for fault in FAULTS for name in fault.tests.split()):
        path = Path(__file__).parent / f"{file}.py"
        assert path.exists(), file
        assert f"def {test.partition('[')[0]}" in path.read_text(encoding="utf-8"), test


# The way of an ask and of a tell is short: CONTRIBUTING.md describes it


STUDY = Path(cabai.__file__).parent / "study"
GUIDE = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")


def files_of(work: Any) -> tuple[set[str], Any]:
    """The files of `study` whose functions are called, and what is returned."""
    found: set[str] = set()

    def see(frame: Any, event: str, _: Any) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(STUDY):
            found.add(path.relative_to(STUDY).as_posix())

    sys.setprofile(see)
    try:
        return found, work()
    finally:
        sys.setprofile(None)


def test_a_warm_ask_and_tell_pass_through_ten_files_that_the_guide_names(folder):
    study = cabai.create_study(
        "way", arms=["a", "b", "c"], family="bernoulli", delta=1e-6, storage=f"sqlite:///{folder}/cabai.db"
    )
    for i in range(10):
        study.tell(study.ask(), i % 2, cost=1.0)
    asked, pull = files_of(study.ask)
    told, _ = files_of(lambda: study.tell(pull, 1, cost=1.0))
    for files, rule in ((asked, "rules/asking.py"), (told, "rules/telling.py")):
        assert len(files) <= 10
        assert rule in files
        assert [file for file in files if file not in GUIDE] == []


def test_asking_and_telling_do_not_import_what_is_shown(folder):
    url = f"sqlite:///{folder}/cabai.db"
    cabai.create_study("shown", arms=["a", "b"], family="bernoulli", storage=url)
    code = (
        "import sys, cabai\n"
        f"study = cabai.load_study('shown', storage={url!r})\n"
        "study.tell(study.ask(), 1, cost=1.0)\n"
        "print([name for name in sys.modules if name.startswith(('cabai.study.show', 'cabai.plots', 'jinja2',"
        " 'cabai.planning', 'sqlalchemy'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == "[]"
