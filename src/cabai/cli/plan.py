"""cabai plan: what a study will cost, and what a budget is enough for."""

from __future__ import annotations

from typing import Any

from cabai.cli.options import argument, file_option, option, takes
from cabai.cli.tools import progress_shown, with_written
from cabai.plots import PICTURES
from cabai.support.validation import InvalidInput


@takes("plan", leave_out=("arms",))
def plan(
    storage: str,
    source: str | None = argument(
        "A study.toml, as for cabai run; or a table of pilot data: columns arm, reward and cost, or scores per item.",
        None,
    ),
    names: str | None = option("Name of each arm: small,medium,large."),
    study: str | None = option("Plan a study with the settings and the data of this stored study."),
    plot: str | None = file_option(
        "Plot the bill against the gap (with --items: against epsilon), to this .png or .svg file.", *PICTURES
    ),
    **settings: Any,
) -> tuple[Any, Any]:
    """Estimate what a study will cost, before you pay for it.

    What will it cost, and what can I conclude with my budget? You do not know the means yet, so give ranges. The plan
    simulates studies with the policy, threshold and defaults of a real one, each on means and costs drawn from your
    ranges. It prints the bill (median, mean, 90 % and 99 % quantiles), the chance of a decision within the budget, the
    budget that is enough, and the smallest epsilon, gap and delta that your budget is enough for. It also prints what
    each arm adds to the bill, so that you can leave out an arm that is almost never the best.

    Example: cabai plan --family bernoulli --means 0.02..0.03,0.02..0.03,0.01..0.02 --costs 0.05,0.03,0.01 --budget 5000

    From a study file: cabai plan study.toml --means 0.6..0.8,0.7..0.9 --plot bill.svg

    From pilot data (columns arm, reward, cost): cabai plan pilot.csv --family bernoulli --budget 200

    For a dataset, from scores on some items: cabai plan scores.csv --items 5000 --budget 40 (or logs/ --scorer match)

    From a stored study: cabai plan --study judges --storage sqlite:///judges.db
    """
    from cabai.planning import plan

    if study is not None and source is not None:
        raise InvalidInput("give a file or --study, not both.")
    start: Any = source
    if study is not None:
        from cabai.study import load_study

        start = load_study(study, storage=storage)
    arms = None if names is None else [name.strip() for name in names.split(",")]
    settings["curve"] = settings["curve"] or plot is not None
    with progress_shown() as progress:
        found = plan(start, arms=arms, **settings, progress=progress)
    if plot is not None:
        from cabai.plots import plan_figure, save

        save(plan_figure(found), plot)
    return found.to_dict(), with_written(found, plot)
