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
__all__ = ["CO", "CTAS", "DLUCB", "TAS", "Policy", "Racing", "Uniform", "policy_of"]


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
