"""Stand-ins for a user's own family, threshold or policy, which a stored study names, `module:name`.

Its status, its place in a list and its export need none of that code, and must not run it; only `ask` and `tell` do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cabai.families import FAMILIES, Gaussian
from cabai.policies import POLICIES, Uniform
from cabai.support.registry import Named, Registry
from cabai.thresholds import THRESHOLDS, Stylized


@dataclass(frozen=True)
class StandIn:
    text: str = ""

    def __str__(self) -> str:
        return self.text

    @property
    def address(self) -> str:
        return self.text

    @property
    def key(self) -> str:
        return self.text.partition("(")[0]


class StandInFamily(StandIn, Gaussian):
    @property
    def parameters(self) -> dict[str, float]:
        return {"variance": 1.0}


class StandInThreshold(StandIn, Stylized): ...


class StandInPolicy(StandIn, Uniform): ...


KINDS: dict[str, tuple[Registry[Any], type[Named]]] = {
    "family": (FAMILIES, StandInFamily),
    "threshold": (THRESHOLDS, StandInThreshold),
    "policy": (POLICIES, StandInPolicy),
}


def stored(kind: str, text: str) -> Any:
    """The family, threshold or policy that a study names, or a stand-in for a user's own."""
    registry, stand_in = KINDS[kind]
    return stand_in(text=text) if is_own(text) else registry.get(text)  # type: ignore[call-arg]


def is_own(text: str) -> bool:
    """Whether a stored string names a user's own code: `module:name`, perhaps with parameters."""
    return ":" in text.partition("(")[0]
