"""cabai bench: every policy on suites of published instances, and a leaderboard."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from cabai.cli.options import argument, option, read_names, takes
from cabai.cli.tools import progress_shown
from cabai.support.files import file_to_write

SUITES = "kanarios24, gk16, menard19, cr23, shrr24, random"


@takes("bench")
def bench(
    suites: list[str] | None = argument(f"Suites of instances: {SUITES}. Default: all.", None),
    policies: str | None = option("Policies, separated by commas. Your own: mine.py:name. Default: all."),
    delta: float | None = option("Instead of the suites' own."),
    budget: float | None = option("Spend this on every instance, then decide."),
    threshold: str | None = option("Instead of the suites' own."),
    reference: str = option("The policy that others are compared with.", "top-two"),
    quick: bool = option("Two instances and 50 trajectories: under a minute.", False),
    bibtex: bool = option("Only print what to cite for the policies.", False),
    out: str | None = option("Folder for bench.parquet, leaderboard.html and .md; a stopped run continues there."),
    **settings: Any,
) -> tuple[Any, Any]:
    """Compare policies on suites of published instances, and write a leaderboard.

    Every policy of a case faces the same rewards. The arms stand in another order in each trajectory: ties favour none.
    cr23 and shrr24 spend a fixed budget and count errors; the others stop by a threshold. There, a policy that would
    need more than 20 million pulls, times arms, gets fewer trajectories, but at least 10.

    Example: cabai bench --quick

    Example: cabai bench gk16 random --policies top-two,at2,mine.py:my_policy --trajectories 500 --out found
    """
    from cabai.bench import bench
    from cabai.bench.running import CONFIDENT, SPENDING, chosen_cases, chosen_policies
    from cabai.policies import bibtex as entries

    chosen = [own_file(each) for each in read_names(policies)] if policies is not None else []
    if bibtex:
        found = "\n".join(dict.fromkeys(filter(None, map(entries, chosen or [*CONFIDENT, *SPENDING]))))
        return {"bibtex": found}, found
    if out is not None:
        file_to_write(Path(out) / "bench.parquet")
    number = sum(
        len(chosen_policies(chosen, case))
        for case in chosen_cases(suites or (), settings["seed"], quick, delta, budget)
    )
    with progress_shown(number, "simulations") as progress:
        made: Any = bench(
            suites or (), chosen, delta=delta, budget=budget, threshold=threshold, reference=reference, quick=quick,
            out=out, command=f"cabai {' '.join(sys.argv[1:])}", progress=progress, **settings,
        )  # fmt: skip
    files = [] if out is None else [str(path) for path in made.write(out)]
    written = "\n".join(f"written: {path}" for path in files)
    return {"rows": made.rows, "files": files}, f"{made}\n\n{written}" if files else made


def own_file(policy: str) -> str:
    """A policy of one's own in a file, mine.py:name, as module:name that can be imported."""
    file, found, rest = policy.partition(".py:")
    if not found:
        return policy
    folder = str(Path(file).resolve().parent)
    if folder not in sys.path:
        sys.path.append(folder)
    return f"{Path(file).name}:{rest}"
