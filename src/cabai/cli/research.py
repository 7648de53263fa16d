"""cabai bound | simulate | compare | calibrate | reproduce: what policies pay on known instances, and at least must."""

from __future__ import annotations

from typing import Any

from cabai.bound import bound as lower_bound
from cabai.cli.options import argument, file_option, option, read_instance, read_instances, takes
from cabai.cli.tools import progress_shown, with_written
from cabai.hardness import HARDNESS
from cabai.paper import MORE, PARTS
from cabai.plots import PICTURES
from cabai.settings import defaults_for, settings_for
from cabai.support.validation import InvalidInput


@takes("instance", "bound", leave_out=("cost_model", "law", "sd"))
def bound(delta: float, epsilon: float, **settings: Any) -> tuple[Any, Any]:
    """Compute the lower bound on cost for a known instance.

    Prints the least mean cost of any policy that is wrong with probability at most delta on every instance, and how
    to divide the cost among the arms to reach it.

    Example: cabai bound --family gaussian --means 1.5,1,0.5 --costs 1,0.1,0.01 --delta 1e-6
    """
    instance = read_instance(settings)
    result = lower_bound(instance, epsilon)
    floor = result.cost(delta)
    about = {
        "hardness": result.hardness,
        "cost_shares": result.cost_shares.tolist(),
        "pull_shares": result.pull_shares.tolist(),
        "lower_bound": floor,
        "delta": delta,
        "epsilon": epsilon,
        "hardness_of": {} if epsilon else {policy: result.hardness_of(policy) for policy in HARDNESS},
    }
    return about, (
        f"{result}\nbest arm: {instance.best_name}\n"
        f"mean cost of any policy wrong with probability at most {delta:g}: at least {floor:.6g}"
    )


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


@takes("calibrate")
def calibrate(
    out: str | None = file_option("Write the certificate to this .json file, which --threshold can read.", "json"),
    **settings: Any,
) -> tuple[Any, Any]:
    """Find a cheaper threshold for one policy, by simulation.

    A proven threshold holds for every policy, instance and number of pulls. At delta = 0.05 this caution is most of
    the bill. This command searches the instances that are hardest for one policy, family, number of arms and delta. It
    finds the smallest c for which stopping at Z > log(c (1 + log t) / delta) is wrong with probability at most delta
    on them. The result is a threshold, calibrated(c=...), and a certificate: what was searched, and with what
    confidence. It is evidence, not a proof, and says nothing about runs longer than --max-pulls. If you need a
    proof, leave out the threshold: the default is proven.

    Example: cabai calibrate --family gaussian --costs 1,0.1,0.01 --policy co --delta 0.05 --out trial.json

    Then: cabai simulate --family gaussian --means 1.5,1,0.5 --costs 1,0.1,0.01 --policy co --threshold trial.json
    """
    from cabai.calibration import calibrate

    with progress_shown() as progress:
        certificate = calibrate(**settings, progress=progress)
    if out is not None:
        certificate.save(out)
    return certificate.to_dict(), with_written(certificate, out)


@takes("reproduce")
def reproduce(
    part: str = argument(f"What to reproduce: {', '.join(PARTS)}, all of these, or {', '.join(MORE)}.", "all"),
    out: str = option("Folder for report.html, report.md, figures and data.", "results"),
    quick: bool = option("Use 100 trajectories: rough numbers in seconds.", False),
    **settings: Any,
) -> tuple[Any, Any]:
    """Reproduce the paper's tables, figures and claims.

    Compares them with the numbers printed in the paper, and writes a report.

    Example: cabai reproduce all --out results
    """
    from cabai.paper import reproduce
    from cabai.paper.report import text

    if not out:
        raise InvalidInput("--out must name a folder, got ''.")
    with progress_shown() as progress:
        sections, written = reproduce(part, out=out, quick=quick, **settings, progress=progress)
    about = {
        "files": [str(path) for path in written],
        "sections": [
            {"name": each.name, "title": each.title, "text": each.text,
             "tables": [{"caption": t.caption, "header": t.header, "rows": t.rows} for t in each.tables]}
            for each in sections
        ],
    }  # fmt: skip
    lines = [text(section) + "\n" for section in sections]
    return about, "\n".join([*lines, *(f"written: {path}" for path in written if path.suffix in (".html", ".svg"))])
