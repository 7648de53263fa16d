"""cabai compare: what several policies pay."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from cabai.cli.options import read_instance, takes
from cabai.cli.tools import picture_to_write, progress_bar, told_what_is_cancelled, with_written
from cabai.settings import defaults_for
from cabai.support.validation import InvalidInput


@takes("instance", "compare")
def compare(
    plot: Annotated[
        str | None, typer.Option("--plot", help="Also plot what each policy pays, to this .png or .svg file.")
    ] = None,
    **settings: Any,
) -> tuple[Any, Any]:
    """Compare what several policies pay on the same instance.

    All policies see the same rewards and costs. `cabai bench` compares on many instances.

    Example: cabai compare --family bernoulli --means 0.9,0.6,0.3 --costs 1,0.1,0.01 --policies co,ctas,tas --delta 0.01
    """
    from cabai.plots import comparison_figure, save
    from cabai.simulation import compare

    if settings["keep"] != "rows" and plot is not None:
        raise InvalidInput("--plot needs --keep rows: it uses every trajectory.")
    picture_to_write(plot)
    instance = read_instance(settings)
    usual = defaults_for("compare")
    number = settings["trajectories"] * len(settings["policies"])
    if tuple(settings["policies"]) == usual["policies"]:
        del settings["policies"]  # the goal decides
    with told_what_is_cancelled(), progress_bar(number) as progress:
        found: Any = compare(instance, **settings, progress=progress)
    if plot is not None:
        save(comparison_figure(found), plot)
    return {"policies": found.to_dicts()}, with_written(found, plot)
