"""cabai bound: the least any policy with a guarantee must pay."""

from __future__ import annotations

import typer

from cabai.bound import bound as lower_bound
from cabai.cli.options import (
    CostsOption,
    DeltaOption,
    EpsilonOption,
    FamilyOption,
    MeansOption,
    NamesOption,
    read_instance,
)
from cabai.cli.tools import (
    JsonOption,
    show_json,
)
from cabai.hardness import HARDNESS


def bound(
    family: FamilyOption,
    means: MeansOption,
    costs: CostsOption,
    delta: DeltaOption = 0.05,
    epsilon: EpsilonOption = 0.0,
    names: NamesOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compute the lower bound on cost for a known instance.

    Prints the least mean cost of any policy that is wrong with probability at most delta on every instance, and how
    to divide the cost among the arms to reach it.

    Example: cabai bound --family gaussian --means 1.5,1,0.5 --costs 1,0.1,0.01 --delta 1e-6
    """
    instance = read_instance(family, means, costs, names)
    result = lower_bound(instance, epsilon)
    floor = result.cost(delta)
    if as_json:
        show_json(
            {
                "hardness": result.hardness,
                "cost_shares": result.cost_shares.tolist(),
                "pull_shares": result.pull_shares.tolist(),
                "lower_bound": floor,
                "delta": delta,
                "epsilon": epsilon,
                "hardness_of": {} if epsilon else {policy: result.hardness_of(policy) for policy in HARDNESS},
            }
        )
        return
    typer.echo(result)
    typer.echo(f"best arm: {instance.best_name}")
    typer.echo(f"mean cost of any policy wrong with probability at most {delta:g}: at least {floor:.6g}")
