"""Policies, one file each: plain functions that simulations compile and live studies call directly."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from types import FunctionType
from typing import Any

from cabai.core.goal import BEST, CHEAPEST
from cabai.core.state import Fields
from cabai.policies.at2 import AT2
from cabai.policies.base import Policy
from cabai.policies.cheapest import CheapestGoodEnough
from cabai.policies.citations import bibtex
from cabai.policies.co import CO
from cabai.policies.continuous_rejects import ContinuousRejects
from cabai.policies.ctas import CTAS
from cabai.policies.d_lucb import DLUCB
from cabai.policies.dkm import DKM
from cabai.policies.eb_tci import EBTCI
from cabai.policies.fws import FWS
from cabai.policies.lma import LMA
from cabai.policies.ocba import OCBA
from cabai.policies.racing import Racing
from cabai.policies.sequential_halving import SequentialHalving
from cabai.policies.successive_rejects import SuccessiveRejects
from cabai.policies.tas import TAS
from cabai.policies.thompson import Thompson
from cabai.policies.top_two import TopTwo
from cabai.policies.ugape import UGapE
from cabai.policies.uniform import Uniform
from cabai.support.registry import Registry
from cabai.support.validation import check_kind

__all__ = [
    "CO", "CTAS", "DEFAULT", "DLUCB", "POLICIES", "TAS", "CheapestGoodEnough", "Policy", "Racing", "TopTwo", "Uniform",
    "bibtex", "policy", "policy_of",
]  # fmt: skip

#: The name of the default policy, for both simulations and studies.
DEFAULT = "top-two"
USUAL = {BEST: DEFAULT, CHEAPEST: CheapestGoodEnough.name}  # by goal
#: cabai's policies by name; `POLICIES.names` lists them.
POLICIES: Registry[Policy] = Registry(
    "policy", CO, CTAS, TAS, TopTwo, DLUCB, Uniform, Racing, Thompson, EBTCI, AT2, FWS, LMA, DKM, UGapE,
    OCBA, SuccessiveRejects, SequentialHalving, ContinuousRejects,
    unlisted=(CheapestGoodEnough,),
    hint=" To make a policy of a function, write @cabai.policy above it.",
)  # fmt: skip


def policy_of(given: str | Policy, goal: str = BEST) -> Policy:
    """Return the policy with this name, or the given policy itself; each goal has its own default policy.

    >>> print(policy_of("ctas(tracking=ratio)"), policy_of(DEFAULT, "cheapest"))
    ctas(tracking=ratio) cheapest
    """
    return POLICIES.get(USUAL[goal] if given == DEFAULT and goal in USUAL else given)


def policy(
    choose: Any = None,
    *,
    stop: Any = None,
    cost_blind: bool = False,
    arm_memory: Fields | None = None,
    run_memory: Fields | None = None,
) -> Any:
    """Make your own policy from a plain Python function that chooses the next arm; use it as a decorator.

    `choose(arms, run, rules)` returns the number of the arm to pull. It sees the records of `cabai.core.state`:
    `arms[a].pulls`, `arms[a].mean`, `arms[a].cost`, `run.t`, `run.leader` and so on. Numba compiles it, so it may use
    numbers, loops and the functions of `math`, and runs as fast as cabai's own policies. `cabai.uniform(run)` and
    `cabai.normal(run)` give it random numbers. To keep something from one pull to the next, name fields with their
    initial values: `run_memory={"last_best": -1}`, `arm_memory={"score": 0.0}`. It stops when the leader beats
    every rival, unless you give `stop`. A `choose` that looks at `rules.level` depends on delta: simulate it with one
    delta at a time.

    >>> import cabai
    >>> @cabai.policy
    ... def leader_or_cheapest(arms, run, rules):
    ...     if run.t % 2 == 0:
    ...         return run.leader
    ...     chosen = 0
    ...     for a in range(len(arms)):
    ...         if arms[a].costs < arms[chosen].costs:
    ...             chosen = a
    ...     return chosen
    >>> instance = cabai.Instance("bernoulli", means=[0.9, 0.5], costs=[1, 0.1])
    >>> cabai.simulate(instance, leader_or_cheapest, delta=0.1, trajectories=100).summary().errors
    0
    """
    if choose is None:
        return partial(policy, stop=stop, cost_blind=cost_blind, arm_memory=arm_memory, run_memory=run_memory)
    check_kind(choose, FunctionType, "a policy is made of a function that chooses the next arm")
    members = {
        "name": choose.__name__.replace("_", "-"),
        "__doc__": choose.__doc__,
        "__module__": choose.__module__,
        "__qualname__": choose.__qualname__,
        "choose": staticmethod(choose),
        "cost_blind": cost_blind,
        "arm_memory": dict(arm_memory or {}),
        "run_memory": dict(run_memory or {}),
        "keeps": tuple(run_memory or {}),
        "keeps_of_arms": tuple(arm_memory or {}),
    }
    if stop is not None:
        members |= {"stop": staticmethod(stop), "depends_on_delta": True}
    own: Any = type(choose.__name__, (Policy,), members)
    return dataclass(frozen=True)(own)()
