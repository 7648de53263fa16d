"""cabai bound: the least any policy with a guarantee must pay."""

from __future__ import annotations

from typing import Any

from cabai.bound import bound as lower_bound
from cabai.cli.options import read_instance, takes
from cabai.hardness import HARDNESS


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
