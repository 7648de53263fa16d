"""`cabai study ask` and `tell`, which load little, say and do what the whole shell would; and completion."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

import cabai
from cabai import quick
from cabai.cli import main as whole
from shell import apart, here

PLAIN = [
    line.split()
    for line in """ask x
    ask x -n 2
    ask x --number 3 --worker me --json
    tell x PULL --reward 1 --cost 0.5
    tell x PULL --cost 2.5e-1 --reward 0 --json
    tell x PULL --failed late --cost 1
    tell x PULL --reward 1
    tell x no-pull --reward 1 --cost -1
    ask ended
    ask x -n 0
    ask x --storage sqlite:///nowhere.db
    ask x --storage what://is""".splitlines()
]
OTHERS = [
    line.split()
    for line in """ask
    ask x y
    ask x -n two
    ask x --help
    ask x --number=2
    ask x -n 1 -n 2
    ask x --worker --json y
    tell x
    tell x 1-1 --reward nan
    status x""".splitlines()
]


def played(main, folder, monkeypatch, capsys) -> list[tuple]:
    """What each of the commands prints, in a separate folder, with pulls replaced by their numbers."""
    folder.mkdir()
    monkeypatch.chdir(folder)
    options = {"arms": ["a", "b", "c"], "family": "bernoulli", "seed": 3}
    study = cabai.create_study("x", **options)
    cabai.create_study("ended", **options).stop()
    said = []
    for words in [*PLAIN, *PLAIN, *OTHERS]:
        pull = study.ask()
        monkeypatch.setattr(sys, "argv", ["cabai", "study", *(pull.id if word == "PULL" else word for word in words)])
        code = 0
        try:
            main()
        except SystemExit as ended:
            code = ended.code or 0
        out, err = capsys.readouterr()
        out, err = (re.sub(r'[0-9a-f]{16}-|"expires": [0-9.]+', "", text) for text in (out, err))
        said.append((words, code, out, err))
    return [*said, *((each["arm"], each["reward"], each["cost"]) for each in study.observations())]


def test_it_is_the_same_whoever_answers(tmp_path, monkeypatch, capsys):
    """The same choices, the same words, the same codes; of what is not plain too, which is left to the whole shell."""
    import gc
    import warnings

    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    ours = played(quick.main, tmp_path / "ours", monkeypatch, capsys)
    gc.enable()
    assert ours == played(whole, tmp_path / "theirs", monkeypatch, capsys)
    assert {each[1] for each in ours if isinstance(each[0], list)} == {0, 2, 3}


def test_it_loads_neither_typer_nor_the_compiler(tmp_path):
    cabai.create_study("x", arms=["a", "b"], family="bernoulli", storage=f"sqlite:///{tmp_path}/cabai.db")
    code = (
        "import sys; sys.argv = ['cabai', 'study', 'ask', 'x']; from cabai.quick import main; main(); "
        "print(*(name for name in ('typer', 'rich', 'pydantic', 'numba', 'alembic', 'pandas', 'scipy', "
        "'cabai.simulation.simulating', 'cabai.calibration', 'cabai.datasets.replaying') if name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.stdout.splitlines()[1:] == [""]
    [pull] = json.loads(apart("study", "ask", "x", "--json", cwd=tmp_path).stdout)["pulls"]
    assert set(pull) == {"id", "arm", "item", "number", "expires", "offers", "metadata"}
    assert pull["arm"] == "b"


def completed(*words: str) -> list[str]:
    environment = {
        "_CABAI_COMPLETE": "complete_bash", "COMP_WORDS": " ".join(("cabai", *words)), "COMP_CWORD": str(len(words)),
    }  # fmt: skip
    return here(env=environment).stdout.split()


def test_names_of_commands_and_options_are_completed():
    assert completed("re") == ["replay", "reproduce"]
    assert completed("study", "as") == ["ask"]
    assert set(completed("study", "a")) == {"accept", "add-arm", "amend", "ask"}
    assert completed("study", "ask", "--st") == ["--storage"]
    assert set(completed("")) >= {"bound", "simulate", "run", "serve", "study"}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_shown_and_installed(shell, tmp_path):
    environment = {"HOME": str(tmp_path), "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    shown = here("--show-completion", shell, env=environment)
    assert shown.returncode == 0
    assert "_CABAI_COMPLETE=complete_" in shown.stdout
    done = here("--install-completion", shell, env=environment)
    assert (done.returncode, f"{shell} completion installed in {tmp_path}" in done.stdout) == (0, True)
    written = "".join(path.read_text() for path in tmp_path.rglob("*") if path.is_file())
    assert "_CABAI_COMPLETE=complete_" in written
