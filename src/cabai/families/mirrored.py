"""Any family with every reward negated, so that kernels, which look for the largest mean, find the smallest."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cabai.families.base import Family
from cabai.families.base import lower_end as inner_lower_end
from cabai.families.base import upper_end as inner_upper_end
from cabai.families.slots import divergence as inner_divergence
from cabai.families.slots import draw_mean as inner_draw_mean
from cabai.families.slots import edges as inner_edges
from cabai.families.slots import remainder as inner_remainder
from cabai.families.slots import straightened as inner_straightened
from cabai.families.slots import tilted as inner_tilted
from cabai.families.slots import variance_at as inner_variance_at
from cabai.families.slots import variance_slope as inner_variance_slope
from cabai.support.lazy import lazy
from cabai.support.specialise import Binding, binding, needs, specialised


def divergence(rules, p, difference, q, complement):
    return inner_divergence(rules, -p, -difference, -q, 1.0 + q)


def variance_at(rules, q, complement):
    return inner_variance_at(rules, -q, 1.0 + q)


def variance_slope(rules, q):
    return -inner_variance_slope(rules, -q)


def edges(rules):
    low, high = inner_edges(rules)
    return -high, -low


def upper_end(rules, mean, level):
    return -inner_lower_end(rules, -mean, level)


def lower_end(rules, mean, level):
    return -inner_upper_end(rules, -mean, level)


def draw_mean(rules, record, n, total):
    return -inner_draw_mean(rules, record, n, -total)


def remainder(rules, n, total):
    return inner_remainder(rules, n, -total)


def tilted(rules, tilt, rate, price, n, difference, m):
    log, slope = inner_tilted(rules, -tilt, rate, price, n, -difference, -m)
    return log, -slope


def straightened(rules, m, shift):
    x, slope = inner_straightened(rules, -m, -shift)
    return -x, slope


def evidence_at_most(rules, b, a):
    """Replaces the family's own version, which is not valid for negated rewards."""
    return np.inf


def evidence_at_least(rules, b, a):
    return 0.0


def mirror_image(family: Family) -> Family:
    """The family that compiled code uses when you minimize: the family itself if it is symmetric, else mirrored.

    >>> import cabai
    >>> from cabai.families import Bernoulli, Poisson
    >>> mirror_image(Bernoulli()).name, mirror_image(Poisson()).name
    ('bernoulli', 'mirrored poisson')
    """
    return family if family.is_symmetric else Mirrored(family)


@dataclass(frozen=True)
class Mirrored(Family):
    """The family of another family's rewards with their sign reversed, for `direction="minimize"`.

    >>> from cabai.families import Poisson
    >>> Mirrored(Poisson()).allows_mean(-3.0), Mirrored(Poisson()).allows_mean(3.0)
    (True, False)
    """

    inner: Family
    functions = (
        divergence, variance_at, variance_slope, edges, upper_end, lower_end, draw_mean, remainder, tilted,
        straightened,
    )  # fmt: skip

    @property
    def name(self) -> str:  # type: ignore[override]
        return f"mirrored {self.inner.name}"

    @property
    def parameters(self) -> dict[str, float]:
        return self.inner.parameters

    @property
    def sets_first_aside(self) -> bool:  # type: ignore[override]
        return self.inner.sets_first_aside

    @property
    def shows_margins(self) -> bool:  # type: ignore[override]
        return self.inner.shows_margins

    @property
    def usual_tilts(self) -> tuple[float, float]:  # type: ignore[override]
        return self.inner.usual_tilts

    @property
    def tilt_ranges(self) -> tuple[tuple[float, float, float], ...]:
        return tuple((-high, -low, usual) for low, high, usual in reversed(self.inner.tilt_ranges))

    def tilt(self, tilt: float) -> tuple[float, float]:
        return self.inner.tilt(-tilt)

    @lazy
    def binding(self) -> Binding:
        """Its own functions, each bound to those of the original family, as far as that has them."""
        given = self.inner.binding
        own = [specialised(each, given) for each in self.functions if not needs((each,), given)]
        own += [each for each in (evidence_at_most, evidence_at_least) if each.__name__ in dict(given)]
        return binding(own)

    def allows_mean(self, mean: float) -> bool:
        return self.inner.allows_mean(-mean)
