"""cabai replay: what a race would have cost on scores you already have."""

from __future__ import annotations

import warnings
from typing import Any

from cabai.cli.options import argument, file_option, takes
from cabai.cli.tools import progress_shown, with_written
from cabai.plots import PICTURES
from cabai.settings import settings_for


@takes("replay", "scores")
def replay(
    scores: list[str] = argument(
        "A CSV or Parquet file of scores; or logs of Inspect (.eval, .json) or lm-evaluation-harness "
        "(samples_*.jsonl), or a folder of logs."
    ),
    plot: str | None = file_option("Also plot the bill and what each arm cost, to this .png or .svg file.", *PICTURES),
    **settings: Any,
) -> tuple[Any, Any]:
    """Find what a race would have cost on scores you already have.

    A race evaluates the arms on the same items, in random order, and stops as soon as it is sure which arm is best.
    This command runs it many times, each time in a new order.

    A table of scores is either long (columns arm, item, score and, if you like, cost) or wide (one row per item, one
    column per arm and, if you like, a column item). Items without a score for every arm are left out; their number is
    reported.

    Example: cabai replay scores.csv --costs prices.csv --epsilon 0.01

    Example: cabai replay logs/ --scorer match --plot paid.svg
    """
    from cabai.datasets import read_table, replay
    from cabai.errors import MissingScores

    table = read_table(
        scores[0] if len(scores) == 1 else scores, **{name: settings[name] for name in settings_for("scores")}
    )
    settings = {name: settings[name] for name in settings_for("replay") if name != "costs"}
    with progress_shown(settings["repeats"], "races") as progress, warnings.catch_warnings():
        warnings.simplefilter("ignore", MissingScores)  # the result reports it
        found = replay(table, **settings, progress=progress)
    if plot is not None:
        from cabai.plots import replay_figure, save

        save(replay_figure(found), plot)
    return found.to_dict(), with_written(found, plot)
