"""The way of an ask and of a tell is short: CONTRIBUTING.md describes it, and few files of `study` are on it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import cabai

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
