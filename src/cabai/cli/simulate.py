"""cabai simulate: what a policy pays on an instance."""

from __future__ import annotations

from typing import Any

from cabai.cli.options import file_option, read_instance, takes
from cabai.cli.tools import progress_shown, with_written
from cabai.support.validation import InvalidInput


@takes("instance", "simulate")
def simulate(
    out: str | None = file_option("Also write one row per trajectory to this Parquet file."),
    **settings: Any,
) -> tuple[Any, Any]:
    """Simulate a policy many times on a known instance.

    Prints what it pays, how often it is wrong, and the lower bound.

    Example: cabai simulate --family gaussian --means 1.5,1,0.5 --costs 1,0.1,0.01 --policy ctas --delta 1e-6
    """
    from cabai.simulation import simulate

    instance = read_instance(settings)
    if out is not None and settings["keep"] != "rows":
        raise InvalidInput("--out needs --keep rows: it writes every trajectory.")
    with progress_shown(settings["trajectories"]) as progress:
        runs: Any = simulate(instance, **settings, progress=progress)
    if out is not None:
        runs.to_parquet(out)
    return runs.summary().to_dict(), with_written(runs, out)
