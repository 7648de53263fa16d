"""The options that several commands take, and what they describe."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from cabai.cli.tools import read_numbers
from cabai.core.goal import GOALS
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
        help=f"What a reward is: {', '.join(FAMILIES.names)}. A gaussian takes its variance: gaussian(variance=4); "
        "bounded rewards their range: bounded(low=0, high=10). Or your own, module:name.",
    ),
]
MeansOption = Annotated[str, typer.Option("--means", help="Each arm's mean reward, separated by commas: 1.5,1,0.5")]
CostsOption = Annotated[str, typer.Option("--costs", help="Each arm's mean cost, separated by commas: 1,0.1,0.01")]
NamesOption = Annotated[str | None, typer.Option("--names", help="The arms' names, separated by commas.")]
CostModelOption = Annotated[
    str, typer.Option("--cost-model", help=f"How a pull's cost is drawn around its mean: {', '.join(COST_MODELS)}.")
]
LawOption = Annotated[
    str | None,
    typer.Option("--law", help=f"How bounded rewards are drawn: {', '.join(LAWS)}. Uniform unless told otherwise."),
]
SdOption = Annotated[
    str | None,
    typer.Option("--sd", help="With --law: the standard deviation of rewards, one for all arms or one for each."),
]
DeltaOption = Annotated[float, typer.Option("--delta", help="The probability of a wrong decision that is allowed.")]
EpsilonOption = Annotated[
    float, typer.Option("--epsilon", help="An arm whose mean is within epsilon of the best is good enough.")
]
GoalOption = Annotated[
    str,
    typer.Option(
        "--goal",
        help="What to look for: the best arm, or the cheapest to run that is within epsilon of the best: "
        f"{' or '.join(GOALS)}.",
    ),
]
SlackOption = Annotated[
    float | None,
    typer.Option(
        "--slack",
        help="With --goal cheapest: every cheaper arm is shown to be worse than the best by more than epsilon - slack. "
        "Half of epsilon, unless told otherwise.",
    ),
]
RunningCostsOption = Annotated[
    str | None,
    typer.Option(
        "--running-costs", help="With --goal cheapest: what each arm costs to run, if not what it costs to try."
    ),
]
ThresholdOption = Annotated[
    str | None,
    typer.Option(
        "--threshold",
        help=f"When one arm beats another: {', '.join(THRESHOLDS.names)}; parameters in brackets, "
        "such as paper(alpha=1.2); your own, module:name; or a file that cabai calibrate has written. "
        "The cheapest that is proven for the family, unless told otherwise.",
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
    int | None,
    typer.Option("--workers", help="How many trajectories run at a time: all cores, unless told otherwise."),
]
EngineOption = Annotated[
    str | None,
    typer.Option("--engine", help="Where trajectories run: processes, dask or ray. In threads, unless told otherwise."),
]
SchedulerOption = Annotated[
    str | None, typer.Option("--scheduler", help="With --engine dask: the scheduler's address, tcp://host:8786.")
]
AddressOption = Annotated[
    str | None, typer.Option("--address", help="With --engine ray: the cluster's address, ray://host:10001, or auto.")
]
KeepOption = Annotated[
    str,
    typer.Option("--keep", help="rows, or summary: any number of trajectories in little memory, quantiles to 0.05 %."),
]
POLICY_HELP = (
    f"{', '.join(POLICIES.names)}; parameters in brackets, such as ctas(tracking=ratio); or your own, module:name."
)


def read_engine(engine: str | None, scheduler: str | None, address: str | None) -> dict[str, Any]:
    """The engine that the options name, and the address of its cluster, as options of what takes them."""
    if scheduler is not None and engine != "dask":
        raise InvalidInput("--scheduler is the address of a Dask scheduler: it needs --engine dask.")
    if address is not None and engine != "ray":
        raise InvalidInput("--address is the address of a Ray cluster: it needs --engine ray.")
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
