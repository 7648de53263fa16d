"""Options shared by several commands, and how to read them."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from cabai.cli.tools import read_numbers
from cabai.core.goal import BEST, CHEAPEST
from cabai.families import FAMILIES
from cabai.families.laws import LAWS
from cabai.instance import COST_MODELS, Instance
from cabai.policies import POLICIES
from cabai.support.validation import InvalidInput
from cabai.thresholds import THRESHOLDS

FamilyOption = Annotated[
    str,
    typer.Option(
        "--family",
        help=f"How rewards are distributed: {', '.join(FAMILIES.names)}. Parameters go in brackets: "
        "gaussian(variance=4), bounded(low=0, high=10). For your own family: module:name.",
    ),
]
MeansOption = Annotated[str, typer.Option("--means", help="Mean reward of each arm: 1.5,1,0.5")]
CostsOption = Annotated[str, typer.Option("--costs", help="Mean cost per pull of each arm: 1,0.1,0.01")]
NamesOption = Annotated[str | None, typer.Option("--names", help="Name of each arm: small,medium,large")]
CostModelOption = Annotated[
    str, typer.Option("--cost-model", help=f"How the cost of a pull varies around its mean: {', '.join(COST_MODELS)}.")
]
LawOption = Annotated[
    str | None,
    typer.Option("--law", help=f"How to draw bounded rewards: {', '.join(LAWS)}. Default: uniform."),
]
SdOption = Annotated[
    str | None,
    typer.Option("--sd", help="With --law: standard deviation of rewards, one for all arms or one per arm."),
]
DeltaOption = Annotated[float, typer.Option("--delta", help="Largest allowed probability of a wrong decision.")]
EpsilonOption = Annotated[
    float, typer.Option("--epsilon", help="Accept any arm whose mean is within epsilon of the best.")
]
GoalOption = Annotated[
    str,
    typer.Option(
        "--goal",
        help=f"What to look for: {BEST} (the best arm) or {CHEAPEST} (the cheapest arm to run among those within "
        "epsilon of the best).",
    ),
]
SlackOption = Annotated[
    float | None,
    typer.Option(
        "--slack",
        help="With --goal cheapest: show that every cheaper arm is worse than the best by more than epsilon - slack. "
        "Default: half of epsilon.",
    ),
]
RunningCostsOption = Annotated[
    str | None,
    typer.Option(
        "--running-costs",
        help="With --goal cheapest: what each arm costs to run: 1,0.1. Default: what it costs to try.",
    ),
]
ThresholdOption = Annotated[
    str | None,
    typer.Option(
        "--threshold",
        help=f"The test that decides when one arm beats another: {', '.join(THRESHOLDS.names)}. Parameters go in "
        "brackets: paper(alpha=1.2). For your own: module:name. Or a file written by cabai calibrate. Default: the "
        "cheapest threshold proven for the family.",
    ),
]
TrajectoriesOption = Annotated[int, typer.Option("--trajectories", help="Number of simulated runs.")]
SeedOption = Annotated[int, typer.Option("--seed", help="Random seed: the same seed gives the same results.")]
MaxPullsOption = Annotated[
    int | None, typer.Option("--max-pulls", help="Cut a trajectory, as unfinished, after this many pulls.")
]
MaxCostOption = Annotated[
    float | None, typer.Option("--max-cost", help="Cut a trajectory, as unfinished, once it has cost this much.")
]


def workers_option(what: str) -> Any:
    return typer.Option("--workers", help=f"Number of {what} to run in parallel. Default: one per core.")


WorkersOption = Annotated[int | None, workers_option("trajectories")]
EngineOption = Annotated[
    str | None,
    typer.Option("--engine", help="Where to run trajectories: processes, dask, ray or cuda. Default: in threads."),
]
SchedulerOption = Annotated[
    str | None, typer.Option("--scheduler", help="With --engine dask: address of the scheduler: tcp://host:8786")
]
AddressOption = Annotated[
    str | None, typer.Option("--address", help="With --engine ray: address of the cluster: ray://host:10001, or auto.")
]
KeepOption = Annotated[
    str,
    typer.Option(
        "--keep",
        help="rows (every trajectory) or summary (any number of trajectories in little memory, with quantiles "
        "accurate to 0.05 %).",
    ),
]
POLICY_HELP = (
    f"{', '.join(POLICIES.names)}. Parameters go in brackets: ctas(tracking=ratio). For your own: module:name."
)


def read_engine(engine: str | None, scheduler: str | None, address: str | None) -> dict[str, Any]:
    """The engine and the address of its cluster, as keyword arguments."""
    if scheduler is not None and engine != "dask":
        raise InvalidInput("--scheduler needs --engine dask: it is the address of a Dask scheduler.")
    if address is not None and engine != "ray":
        raise InvalidInput("--address needs --engine ray: it is the address of a Ray cluster.")
    return {"engine": engine, "address": scheduler or address}


def read_instance(
    family: str,
    means: str,
    costs: str,
    names: str | None = None,
    cost_model: str = "fixed",
    law: str | None = None,
    sd: str | None = None,
) -> Instance:
    """The instance that the options describe."""
    spreads = None if sd is None else read_numbers(sd, "--sd")
    given_names = None if names is None else [name.strip() for name in names.split(",")]
    return Instance(
        family, read_numbers(means, "--means"), read_numbers(costs, "--costs"), names=given_names,
        cost_model=cost_model, law=law, sd=spreads[0] if spreads is not None and len(spreads) == 1 else spreads,
    )  # fmt: skip


def read_running_costs(given: str | None) -> list[float] | None:
    return None if given is None else read_numbers(given, "--running-costs")
