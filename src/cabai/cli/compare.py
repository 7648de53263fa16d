"""cabai compare: what several policies pay."""

from __future__ import annotations

from typing import Any

from cabai.cli.options import argument, file_option, read_instance, read_instances, takes
from cabai.cli.tools import progress_shown, with_written
from cabai.plots import PICTURES
from cabai.settings import defaults_for, settings_for
from cabai.support.validation import InvalidInput


@takes("instance", "compare", optional=("family", "means", "costs"))
def compare(
    instances: str | None = argument(
        "A TOML file of several instances: a table each, with the options of one as keys.", None
    ),
    plot: str | None = file_option("Also plot what each policy pays, to this .png or .svg file.", *PICTURES),
    **settings: Any,
) -> tuple[Any, Any]:
    """Compare what several policies pay on the same instance, or on each of several.

    All policies see the same rewards and costs. `cabai bench` compares on published instances.

    Example: cabai compare --family bernoulli --means 0.9,0.6,0.3 --costs 1,0.1,0.01 --policies co,ctas,tas --delta 0.01

    Example: cabai compare instances.toml --plot costs.svg, with [easy] and [hard] tables: family = "gaussian", ...
    """
    from cabai.plots import save
    from cabai.simulation import compare

    if settings["keep"] != "rows" and plot is not None:
        raise InvalidInput("--plot needs --keep rows: it uses every trajectory.")
    given = {name: settings.pop(name) for name in settings_for("instance")}
    if instances is None and None in (given["family"], given["means"], given["costs"]):
        raise InvalidInput("give --family, --means and --costs of an instance, or a TOML file of several.")
    if instances is not None and given != dict.fromkeys(given) | {"cost_model": "fixed"}:
        raise InvalidInput("options of an instance are for one: with a file of instances, write them there.")
    instance: Any = read_instance(given) if instances is None else read_instances(instances)
    usual = defaults_for("compare")
    number = settings["trajectories"] * len(settings["policies"]) * (1 if instances is None else len(instance))
    if tuple(settings["policies"]) == usual["policies"]:
        del settings["policies"]  # the goal decides
    with progress_shown(number) as progress:
        found: Any = compare(instance, **settings, progress=progress)
    if plot is not None:
        save(found.plot(), plot)
    return {"policies": found.to_dicts()}, with_written(found, plot)
