"""The shell. Every command takes --json; every error is one line on stderr and a code that is not 0."""

from __future__ import annotations

import errno
import io
import json
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Annotated, Any, NoReturn

import typer

import cabai
from cabai import interrupts
from cabai.checks import EXTRAS, InvalidInput, how_to_install
from cabai.cli_study import run, study_app
from cabai.cli_tools import (
    Interrupted,
    JsonOption,
    read_names,
    read_numbers,
    read_whole_numbers,
    show_help_alone,
    show_json,
)
from cabai.families import FAMILIES
from cabai.files import file_to_write
from cabai.hardness import HARDNESS
from cabai.instance import COST_MODELS, Instance
from cabai.paper import MORE, PARTS
from cabai.policies import POLICIES
from cabai.study import FailedPulls, NoPull, RunFailed, StorageError, StudyStopped
from cabai.thresholds import THRESHOLDS

app = typer.Typer(
    help="Find the best of K options, wrong with probability at most delta, for the least money.",
    invoke_without_command=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

app.command()(run)
app.add_typer(study_app, name="study")

FamilyOption = Annotated[
    str,
    typer.Option(
        "--family",
        help=f"What a reward is: {', '.join(FAMILIES.names)}. A gaussian takes its variance: gaussian(variance=4).",
    ),
]
MeansOption = Annotated[str, typer.Option("--means", help="Each arm's mean reward, separated by commas: 1.5,1,0.5")]
CostsOption = Annotated[str, typer.Option("--costs", help="Each arm's mean cost, separated by commas: 1,0.1,0.01")]
NamesOption = Annotated[str | None, typer.Option("--names", help="The arms' names, separated by commas.")]
CostModelOption = Annotated[
    str, typer.Option("--cost-model", help=f"How a pull's cost is drawn around its mean: {', '.join(COST_MODELS)}.")
]
DeltaOption = Annotated[float, typer.Option("--delta", help="The probability of a wrong decision that is allowed.")]
EpsilonOption = Annotated[
    float, typer.Option("--epsilon", help="An arm whose mean is within epsilon of the best is good enough.")
]
ThresholdOption = Annotated[
    str,
    typer.Option(
        "--threshold",
        help=f"When one arm beats another: {', '.join(THRESHOLDS.names)}; parameters in brackets, "
        "such as paper(alpha=1.2); or a file that cabai calibrate has written.",
    ),
]
TrajectoriesOption = Annotated[int, typer.Option("--trajectories", help="How many times to run.")]
SeedOption = Annotated[int, typer.Option("--seed", help="The same seed gives the same trajectories.")]
MaxPullsOption = Annotated[
    int | None, typer.Option("--max-pulls", help="Leave a trajectory unfinished after so many pulls.")
]
MaxCostOption = Annotated[
    float | None, typer.Option("--max-cost", help="Leave a trajectory unfinished once it has paid this.")
]
WorkersOption = Annotated[
    int | None, typer.Option("--workers", help="Threads to use; all cores unless told otherwise.")
]
POLICY_HELP = f"{', '.join(POLICIES.names)}; parameters in brackets, such as ctas(tracking=ratio)."


def version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"cabai {cabai.__version__}")
        raise typer.Exit()


@app.callback()
def teach(
    context: typer.Context,
    show_version: Annotated[
        bool, typer.Option("--version", callback=version, is_eager=True, help="Say which version this is.")
    ] = False,
) -> None:
    """Find the best of K options, wrong with probability at most delta, for the least money.

    An arm is an option, a pull is one trial of it; each pull returns a reward and costs something.
    """
    show_help_alone(context)


@app.command()
def bound(
    family: FamilyOption,
    means: MeansOption,
    costs: CostsOption,
    delta: DeltaOption = 0.05,
    names: NamesOption = None,
    as_json: JsonOption = False,
) -> None:
    """The least any policy with a guarantee must pay on a known instance, and how it would divide its money.

    Example: cabai bound --family gaussian --means 1.5,1,0.5 --costs 1,0.1,0.01 --delta 1e-6
    """
    instance = read_instance(family, means, costs, names)
    result = cabai.bound(instance)
    floor = result.cost(delta)
    if as_json:
        show_json(
            {
                "hardness": result.hardness,
                "cost_shares": result.cost_shares.tolist(),
                "pull_shares": result.pull_shares.tolist(),
                "lower_bound": floor,
                "delta": delta,
                "hardness_of": {policy: result.hardness_of(policy) for policy in HARDNESS},
            }
        )
        return
    typer.echo(result)
    typer.echo(f"best arm: {instance.best_name}")
    typer.echo(f"mean cost of any policy wrong with probability at most {delta:g}: at least {floor:.6g}")


@app.command()
def simulate(
    family: FamilyOption,
    means: MeansOption,
    costs: CostsOption,
    policy: Annotated[str, typer.Option("--policy", help=f"How to choose and stop: {POLICY_HELP}")],
    threshold: ThresholdOption = "paper",
    delta: DeltaOption = 0.05,
    epsilon: EpsilonOption = 0.0,
    trajectories: TrajectoriesOption = 1000,
    seed: SeedOption = 0,
    cost_model: CostModelOption = "fixed",
    names: NamesOption = None,
    max_pulls: MaxPullsOption = None,
    max_cost: MaxCostOption = None,
    workers: WorkersOption = None,
    out: Annotated[
        str | None, typer.Option("--out", help="Also write one row a trajectory to this Parquet file.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Run a policy on an instance many times: what it pays, how often it is wrong, and what the lower bound is.

    Example: cabai simulate --family gaussian --means 1.5,1,0.5 --costs 1,0.1,0.01 --policy ctas --delta 1e-6
    """
    from cabai.simulation import simulate

    instance = read_instance(family, means, costs, names, cost_model)
    if out is not None:
        file_to_write(out)  # before any work is done
    with progress_bar(trajectories) as progress:
        runs = simulate(
            instance, policy, threshold=read_threshold(threshold), delta=delta, epsilon=epsilon,
            trajectories=trajectories, seed=seed,
            workers=workers, max_pulls=max_pulls, max_cost=max_cost, progress=progress,
        )  # fmt: skip
    if out is not None:
        runs.to_parquet(out)
    if as_json:
        show_json(runs.summary().to_dict())
    else:
        typer.echo(runs)
        if out is not None:
            typer.echo(f"written: {out}")


@app.command()
def compare(
    family: FamilyOption,
    means: Annotated[str | None, typer.Option("--means", help="Each arm's mean reward: 1.5,1,0.5")] = None,
    costs: Annotated[str | None, typer.Option("--costs", help="Each arm's mean cost: 1,0.1,0.01")] = None,
    policies: Annotated[
        str, typer.Option("--policies", help=f"Policies, separated by commas: {POLICY_HELP}")
    ] = "top-two,co,ctas,tas,d-lucb,racing,uniform",
    threshold: ThresholdOption = "paper",
    delta: DeltaOption = 0.05,
    epsilon: EpsilonOption = 0.0,
    trajectories: Annotated[
        int | None,
        typer.Option("--trajectories", help="How many times to run: 1000, or 100 on each instance of a grid."),
    ] = None,
    seed: SeedOption = 0,
    cost_model: CostModelOption = "fixed",
    names: NamesOption = None,
    max_pulls: MaxPullsOption = None,
    max_cost: MaxCostOption = None,
    workers: WorkersOption = None,
    plot: Annotated[
        str | None, typer.Option("--plot", help="Also draw what each pays to this .png or .svg file.")
    ] = None,
    on_grid: Annotated[
        bool, typer.Option("--grid", help="Compare on random instances instead; --means and --costs are not needed.")
    ] = False,
    thresholds: Annotated[
        str, typer.Option("--thresholds", help="With --grid: thresholds, separated by commas.")
    ] = "paper,evalue",
    deltas: Annotated[
        str, typer.Option("--deltas", help="With --grid: deltas, separated by commas.")
    ] = "0.1,0.01,1e-6",
    arms: Annotated[str, typer.Option("--arms", help="With --grid: numbers of arms, separated by commas.")] = "3,10,50",
    instances: Annotated[
        int, typer.Option("--instances", help="With --grid: random instances for each number of arms.")
    ] = 10,
    as_json: JsonOption = False,
) -> None:
    """Run several policies on one instance, all facing the same rewards and costs, and compare what they pay.

    With --grid, on random instances whose costs differ a hundredfold: every policy with every threshold at every delta.

    Example: cabai compare --family bernoulli --means 0.9,0.6,0.3 --costs 1,0.1,0.01 --policies co,ctas,tas --delta 0.01

    Example: cabai compare --grid --family gaussian --policies top-two,co --trajectories 100
    """
    from cabai.plots import comparison_figure, picture_kind, save
    from cabai.simulation import compare
    from cabai.simulation.grid import grid

    chosen = read_names(policies)
    if on_grid:
        if means is not None or costs is not None or plot is not None or epsilon or max_cost is not None:
            raise InvalidInput(
                "--grid draws its own instances: leave out --means, --costs, --plot, --epsilon, --max-cost."
            )
        rules, sizes = read_names(thresholds), read_whole_numbers(arms, "--arms")
        with progress_bar(len(chosen) * len(rules) * len(sizes) * instances, "simulations") as progress:
            found = grid(
                family, chosen, thresholds=rules, deltas=read_numbers(deltas, "--deltas"), arms=sizes,
                instances=instances, trajectories=100 if trajectories is None else trajectories, seed=seed,
                workers=workers, progress=progress,
                **({} if max_pulls is None else {"max_pulls": max_pulls}),
            )  # fmt: skip
        show_json({"cells": found.to_dicts()}) if as_json else typer.echo(found)
        return
    if means is None or costs is None:
        raise InvalidInput("--means and --costs are needed, unless --grid draws random instances.")
    if plot is not None:
        picture_kind(plot)  # before any work is done
        file_to_write(plot)
    instance = read_instance(family, means, costs, names, cost_model)
    trajectories = 1000 if trajectories is None else trajectories
    with progress_bar(trajectories * len(chosen)) as progress:
        comparison = compare(
            instance, chosen, threshold=read_threshold(threshold), delta=delta, epsilon=epsilon,
            trajectories=trajectories, seed=seed,
            workers=workers, max_pulls=max_pulls, max_cost=max_cost, progress=progress,
        )  # fmt: skip
    if plot is not None:
        save(comparison_figure(comparison), plot)
    if as_json:
        show_json({"policies": comparison.to_dicts()})
        return
    typer.echo(comparison)
    if plot is not None:
        typer.echo(f"written: {plot}")


@app.command()
def calibrate(
    family: FamilyOption,
    costs: CostsOption,
    policy: Annotated[str, typer.Option("--policy", help=f"The policy that will be run: {POLICY_HELP}")] = "top-two",
    delta: DeltaOption = 0.05,
    max_pulls: Annotated[
        int, typer.Option("--max-pulls", help="How long a run may last: the certificate speaks of errors up to there.")
    ] = 10_000,
    trajectories: Annotated[
        int, typer.Option("--trajectories", help="On each hard instance; more of them find a smaller constant.")
    ] = 4000,
    confidence: Annotated[
        float, typer.Option("--confidence", help="The probability that what the certificate says is true.")
    ] = 0.99,
    cost_model: CostModelOption = "fixed",
    seed: SeedOption = 0,
    workers: WorkersOption = None,
    out: Annotated[
        str | None, typer.Option("--out", help="Write the certificate to this JSON file; --threshold can read it.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Find, by simulation, the least evidence with which one policy keeps delta: less than any proof asks for.

    A proven threshold guards against every policy, instance and number of pulls at once, and at delta = 0.05 that is
    most of the bill. This command searches the instances that are hardest for one policy, family, number of arms and
    delta, and finds the smallest c for which stopping at Z > log(c (1 + log t) / delta) errs at most delta there. The
    result is a threshold, written calibrated(c=...), and a certificate: what was searched, and how surely. It is
    evidence, not a proof, and does not speak of more than --max-pulls pulls. Use `evalue` where you need a proof.

    Example: cabai calibrate --family gaussian --costs 1,0.1,0.01 --policy co --delta 0.05 --out trial.json

    Then: cabai simulate --family gaussian --means 1.5,1,0.5 --costs 1,0.1,0.01 --policy co --threshold trial.json
    """
    from cabai.calibration import calibrate

    if out is not None and not out.endswith(".json"):
        raise InvalidInput(f"--out must end in .json, got {out!r}.")
    if out is not None:
        file_to_write(out)  # before any work is done
    with status_line() as told:
        certificate = calibrate(
            family, read_numbers(costs, "--costs"), policy, delta=delta, max_pulls=max_pulls, trajectories=trajectories,
            confidence=confidence, cost_model=cost_model, seed=seed, workers=workers, told=told,
        )  # fmt: skip
    if out is not None:
        certificate.save(out)
    if as_json:
        show_json(certificate.to_dict())
        return
    typer.echo(certificate)
    if out is not None:
        typer.echo(f"written: {out}")


@app.command()
def reproduce(
    part: Annotated[
        str, typer.Argument(help=f"What to make again: {', '.join(PARTS)}, all of these, or {', '.join(MORE)}.")
    ] = "all",
    out: Annotated[
        str, typer.Option("--out", help="The folder for report.html, report.md, figures and data.")
    ] = "results",
    trajectories: TrajectoriesOption = 1000,
    seed: SeedOption = 0,
    quick: Annotated[bool, typer.Option("--quick", help="100 trajectories: rough numbers in seconds.")] = False,
    workers: WorkersOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make the paper's tables, figures and claims again, check them against the printed numbers, and write a report.

    Example: cabai reproduce all --out results
    """
    from cabai.paper import reproduce
    from cabai.paper.report import text

    if not out:
        raise InvalidInput("--out must name a folder, got ''.")
    with status_line() as told:
        sections, written = reproduce(
            part, out=out, trajectories=trajectories, seed=seed, quick=quick, workers=workers, told=told
        )
    if as_json:
        show_json({
            "files": [str(path) for path in written],
            "sections": [
                {"name": each.name, "title": each.title, "text": each.text,
                 "tables": [{"caption": t.caption, "header": t.header, "rows": t.rows} for t in each.tables]}
                for each in sections
            ],
        })  # fmt: skip
        return
    for section in sections:
        typer.echo(text(section) + "\n")
    typer.echo("\n".join(f"written: {path}" for path in written if path.suffix in (".html", ".svg")))


def read_instance(family: str, means: str, costs: str, names: str | None = None, cost_model: str = "fixed") -> Instance:
    """The instance that the options describe."""
    given_names = None if names is None else [name.strip() for name in names.split(",")]
    return Instance(
        family, read_numbers(means, "--means"), read_numbers(costs, "--costs"), names=given_names, cost_model=cost_model
    )


def read_threshold(text: str) -> str:
    """A threshold by its name, or the one in a certificate's file."""
    if not text.endswith(".json"):
        return text
    from cabai.calibration import Certificate

    return Certificate.load(text).threshold


@contextmanager
def progress_bar(total: int, of: str = "trajectories") -> Iterator[Callable[[int], None] | None]:
    """A progress bar on stderr if that is a terminal, else none."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(of, total=total)
        yield lambda done: bar.update(task, completed=done)


@contextmanager
def status_line() -> Iterator[Callable[[str], None] | None]:
    """A line on stderr that says what is being done, if that is a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console

    with Console(stderr=True).status("") as status:
        yield status.update


def show_warning(message: Warning | str, category: type[Warning], *_: Any) -> None:
    """A warning about a study is one line; others are for developers."""
    if issubclass(category, FailedPulls):
        typer.echo(f"cabai: warning: {message}", err=True)


def fail(message: str, code: int) -> NoReturn:
    if code == interrupts.CODE:
        interrupts.leave_at_once()
    line = " ".join(message.split())
    with suppress(OSError):  # there is nobody left to tell
        typer.echo(json.dumps({"error": line}) if "--json" in sys.argv else f"cabai: {line}", err=True)
    sys.exit(code)


def open_streams() -> None:
    """Have the three streams that every program counts on, also where some were closed; and no character of a file's
    or an arm's name that they cannot show is an error."""
    if sys.stdin is None:
        sys.stdin = open(os.devnull)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    if sys.stdout is None:
        fail("standard output is closed, so that no result could be shown: use > /dev/null if you do not want it.", 1)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def system_error(error: OSError) -> str:
    """What the system has refused: to write to standard output, or something else."""
    reason = error.strerror or str(error)
    try:
        sys.stdout.flush()
    except OSError:  # what could not be written is not to be tried again as Python ends
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    if error.filename is not None:
        return f"{reason}: {error.filename}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF):
        return f"cannot write to standard output: {reason}. What was stored before is kept."
    return reason


def main() -> None:
    """Run the command line.

    It ends with 0 when all went well, 2 for bad input, 3 when a study has stopped (if it was run: without a decision),
    4 when it has no pull now, 130 after Ctrl-C, and 1 where something failed: a storage, a test, or cabai itself.
    """
    usage_error: Any = typer.BadParameter.__mro__[2]  # what Typer raises for a wrong command line
    try:
        interrupts.raise_again()
        warnings.showwarning = show_warning  # type: ignore[assignment]
        open_streams()
        code = app(standalone_mode=False)
        if code != interrupts.CODE:
            sys.exit(code)
        fail("stopped.", interrupts.CODE)  # Typer has turned Ctrl-C into this code
    except InvalidInput as error:
        fail(str(error), 2)
    except StudyStopped as error:
        fail(str(error), 3)
    except NoPull as error:
        fail(str(error), 4)
    except (StorageError, RunFailed) as error:
        fail(str(error), 1)
    except Interrupted as error:
        fail(str(error), interrupts.CODE)
    except usage_error as error:
        fail(error.format_message(), 2)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in EXTRAS:
            raise
        fail(how_to_install(error), 2)
    except OSError as error:
        fail(system_error(error), 1)
    except MemoryError as error:
        fail(f"there is not enough memory for this. {error}", 1)
    except (KeyboardInterrupt, typer.Abort):
        fail("stopped.", interrupts.CODE)
    except Exception as error:
        if os.environ.get("CABAI_TRACEBACK"):
            raise
        fail(
            f"this should not happen: {type(error).__name__}: {str(error)[:300]}. It is an error in cabai: please "
            "report it, with what the same command shows if CABAI_TRACEBACK=1 is set in its environment.",
            1,
        )


if __name__ == "__main__":
    main()
