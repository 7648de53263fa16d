"""The policies: one file each. Importing one imports Numba; this page does not."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from cabai.named import Registry

if TYPE_CHECKING:
    from cabai.policies.base import Policy

# name, class and file of each policy
KNOWN = {
    "co": ("CO", "co"),
    "ctas": ("CTAS", "ctas"),
    "tas": ("TAS", "tas"),
    "d-lucb": ("DLUCB", "d_lucb"),
    "uniform": ("Uniform", "uniform"),
    "racing": ("Racing", "racing"),
}
__all__ = ["CO", "CTAS", "DLUCB", "TAS", "Policy", "Racing", "Uniform", "policy", "policy_of"]


def __getattr__(name: str) -> Any:
    files = {"Policy": "base"} | dict(KNOWN.values())
    if name not in files:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"cabai.policies.{files[name]}"), name)


POLICIES: Registry[Policy] = Registry("policy", list(KNOWN), lambda name: __getattr__(KNOWN[name][0]))


def policy_of(given: str | Policy) -> Policy:
    """The policy of that name, or the policy itself.

    >>> print(policy_of("ctas(tracking=ratio)"))
    ctas(tracking=ratio)
    """
    return POLICIES.get(given)


def policy(choose: Any = None, *, stop: Any = None, cost_blind: bool = False) -> Any:
    """A policy of your own, from a plain Python function that chooses the next arm; a decorator.

    `choose(arms, run, rules)` sees the records of `cabai.state`: arms[a].pulls, arms[a].mean, arms[a].cost, run.t,
    run.leader and so on, and returns the number of the arm to pull. It is compiled by Numba, so it may use numbers,
    loops and the functions of `math`, and runs as fast as the policies here. It stops when the leader beats every
    rival, unless `stop` says otherwise.

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
    from cabai.policies.base import compile_policy

    if choose is None:
        return lambda function: compile_policy(function, stop, cost_blind=cost_blind)
    return compile_policy(choose, stop, cost_blind=cost_blind)
