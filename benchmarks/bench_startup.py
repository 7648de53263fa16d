"""CPU seconds until something happens: importing, `--help`, a bound, asking a study, and simulating, the first time and
the second.

Each is the minimum over a few processes, next to its goal. The first simulation compiles, the second loads what the
first has compiled.
"""

from __future__ import annotations

import itertools
import os
import resource
import subprocess
import sys
import tempfile

import cabai
from cabai.support.tables import table

MEANS = {"gaussian": "1.5,1,0.5", "bernoulli": "0.9,0.6,0.3", "poisson": "1.5,1,0.5"}  # the paper's instances
POLICIES = ("top-two", "co", "ctas", "tas", "d-lucb", "racing", "uniform")
CABAI = [sys.executable, "-m", "cabai"]


def paper(family: str) -> list[str]:
    """The options that describe the paper's instance of a family."""
    return ["--family", family, "--means", MEANS[family], "--costs", "1,0.1,0.01", "--delta", "1e-6"]


def cpu_seconds(command: list[str], cache: str) -> float:
    """User and system time of one process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=os.environ | {"NUMBA_CACHE_DIR": cache})
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    repeats = 1 if "--quick" in sys.argv else 3
    rows = [["", "CPU s", "goal"]]
    with tempfile.TemporaryDirectory() as shared:
        asked = f"sqlite:///{shared}/cabai.db"
        cabai.create_study("startup", arms=["a", "b", "c"], family="bernoulli", storage=asked)
        for name, command, goal in [
            ("an empty Python", [sys.executable, "-c", ""], ""),
            ("import numpy", [sys.executable, "-c", "import numpy"], ""),
            ("import cabai", [sys.executable, "-c", "import cabai"], "0.3"),
            ("cabai --help", [*CABAI, "--help"], "0.5"),
            ("cabai bound", [*CABAI, "bound", *paper("gaussian")], ""),
            ("import numpy, sqlalchemy", [sys.executable, "-c", "import numpy, sqlalchemy"], ""),
            ("cabai study ask", [*CABAI, "study", "ask", "startup", "--storage", asked], "0.3"),
            (
                "cabai, one completion",
                ["env", "_CABAI_COMPLETE=complete_bash", "COMP_WORDS=cabai st", "COMP_CWORD=1", *CABAI],
                "",
            ),
        ]:
            rows.append([name, f"{min(cpu_seconds(command, shared) for _ in range(repeats)):.2f}", goal])
    print(table(rows), flush=True)
    rows = [["1000 trajectories", "family", "no cache", "again"], ["goal", "", "4", "1.5"]]
    for family, policy in itertools.product(MEANS, POLICIES):
        cold, warm = [], []
        for _ in range(repeats):
            with tempfile.TemporaryDirectory() as fresh:
                command = [*CABAI, "simulate", *paper(family), "--policy", policy]
                cold.append(cpu_seconds(command, fresh))
                warm.append(cpu_seconds(command, fresh))
        rows.append([policy, family, f"{min(cold):.2f}", f"{min(warm):.2f}"])
    print(table(rows, left=2))


if __name__ == "__main__":
    main()
