"""Commands that pay for nothing: cabai bound | simulate | compare | calibrate | reproduce | plan | replay | bench."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

from cabai import plots
from cabai.bound import bound as lower_bound
from cabai.cli.options import argument, file_option, option, read_instance, read_instances, read_names, takes
from cabai.cli.tools import progress_shown, with_written
from cabai.hardness import HARDNESS
from cabai.paper import MORE, PARTS
from cabai.settings import defaults_for, settings_for
from cabai.support.files import file_to_write
from cabai.support.validation import InvalidInput

SUITES = "kanarios24, gk16, menard19, cr23, shrr24, random"


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
    plot: str | None = file_option("Also plot what each policy pays, to this .png or .svg file.", *plots.PICTURES),
    **settings: Any,
) -> tuple[Any, Any]:
    """Compare what several policies pay on the same instance, or on each of several.

    All policies see the same rewards and costs. `cabai bench` compares on published instances.

    Example: cabai compare --family bernoulli --means 0.9,0.6,0.3 --costs 1,0.1,0.01 --policies co,ctas,tas --delta 0.01

    Example: cabai compare instances.toml --plot costs.svg, with [easy] and [hard] tables: family = "gaussian", ...
    """
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
        plots.save(found.plot(), plot)
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
        "Plot the bill against the gap (with --items: against epsilon), to this .png or .svg file.", *plots.PICTURES
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
        plots.save(plots.plan_figure(found), plot)
    return found.to_dict(), with_written(found, plot)


@takes("replay", "scores")
def replay(
    scores: list[str] = argument(
        "A CSV or Parquet file of scores; or logs of Inspect (.eval, .json) or lm-evaluation-harness "
        "(samples_*.jsonl), or a folder of logs."
    ),
    plot: str | None = file_option(
        "Also plot the bill and what each arm cost, to this .png or .svg file.", *plots.PICTURES
    ),
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
        plots.save(plots.replay_figure(found), plot)
    return found.to_dict(), with_written(found, plot)


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
