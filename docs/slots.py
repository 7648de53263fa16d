"""Write the table of slots in CONTRIBUTING.md from the source: python docs/slots.py

A slot is a function that kernels call and that others replace by a function of the same name (`support/specialise.py`).
"""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "cabai"
PAGE = ROOT / "CONTRIBUTING.md"
ROOMS = "families", "core", "thresholds", "policies", "datasets", "simulation"
ABOVE, BELOW = "<!-- slots: made by `python docs/slots.py` -->\n", "<!-- end of slots -->\n"


class File:
    """One file of the package: its functions, and where the names that it uses come from."""

    def __init__(self, path: Path) -> None:
        self.name = path.relative_to(PACKAGE).with_suffix("").as_posix()
        self.tree = ast.parse(path.read_text(encoding="utf-8"))
        self.functions = {each.name: each for each in self.tree.body if isinstance(each, ast.FunctionDef)}
        self.origins = dict.fromkeys(self.functions, self.name)
        self.called = {name: name for name in self.functions}  # what each name is called where it is defined
        for each in ast.walk(self.tree):
            if isinstance(each, ast.ImportFrom) and (each.module or "").startswith("cabai."):
                home = str(each.module).removeprefix("cabai.").replace(".", "/")
                self.origins |= {alias.asname or alias.name: home for alias in each.names}
                self.called |= {alias.asname or alias.name: alias.name for alias in each.names}

    def slots(self) -> dict[str, bool]:
        """The slots defined here, and whether they have a default."""
        marked = {name: [ast.unparse(mark) for mark in each.decorator_list] for name, each in self.functions.items()}
        return {name: "slot" in marks for name, marks in marked.items() if {"slot", "required_slot"} & {*marks}}

    def calls(self) -> set[tuple[str, str]]:
        """The functions that functions of this file call: where each is defined, and its name."""
        calls = [each for one in self.functions.values() for each in ast.walk(one) if isinstance(each, ast.Call)]
        named = [each.func.id for each in calls if isinstance(each.func, ast.Name)]
        return {(self.origins[name], self.called[name]) for name in named if name in self.origins}

    def bound(self, home: str) -> set[str]:
        """Names of functions, not those of `home`, that a class lists or that are bound in a pair (name, function)."""
        found = set()
        bodies = [each for each in self.tree.body if isinstance(each, (ast.Assign, ast.ClassDef))]
        for each in (each for body in bodies for each in ast.walk(body) if isinstance(each, ast.Tuple)):
            found |= {
                one.id for one in each.elts if isinstance(one, ast.Name) and self.origins.get(one.id, home) != home
            }
            found |= {one.attr for one in each.elts if isinstance(one, ast.Attribute)}
        pairs = [each.elts[0] for each in ast.walk(self.tree) if isinstance(each, ast.Tuple) and len(each.elts) == 2]
        return found | {str(first.value) for first in pairs if isinstance(first, ast.Constant)}


def table() -> str:
    files = [File(path) for room in ROOMS for path in sorted((PACKAGE / room).rglob("*.py"))]
    homes = {(file.name, name): default for file in files for name, default in file.slots().items()}
    callers, replacers = defaultdict(list), defaultdict(list)
    for file in files:
        calls = file.calls()
        bound = {home: file.bound(home) for home, _ in homes}
        for home, name in homes:
            of_races = home.startswith("datasets/")  # a board's slots and a run's have nothing to do with each other
            if (home, name) in calls:
                callers[name].append(file.name)
            replaces = name in file.functions and file.name != home if of_races else name in bound[home]
            if replaces and file.name.startswith("datasets/") == of_races:
                replacers[name].append(file.name)
    rows = [
        [f"`{name}`", home, "yes" if default else "no", ", ".join(callers[name]), ", ".join(replacers[name])]
        for (home, name), default in homes.items()
    ]  # fmt: skip
    header = ["slot", "defined in", "default", "called by", "replaced by"]
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("|" + "|".join(line) + "|" for line in lines) + "\n"


def page() -> str:
    """CONTRIBUTING.md with the table."""
    before, rest = PAGE.read_text(encoding="utf-8").split(ABOVE)
    return before + ABOVE + "\n" + table() + "\n" + BELOW + rest.split(BELOW)[1]


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
