"""Any family with every reward negated, so that kernels, which look for the largest mean, find the smallest."""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter

import numpy as np

from cabai.families.base import Family, lower_end, upper_end
from cabai.families.slots import (
    divergence,
    draw_mean,
    edges,
    remainder,
    straightened,
    tilted,
    variance_at,
    variance_slope,
)
from cabai.support.lazy import lazy
from cabai.support.specialise import Binding, binding, needs, specialised


def mirrored_divergence(rules, p, difference, q, complement):
    return divergence(rules, -p, -difference, -q, 1.0 + q)


def mirrored_variance_at(rules, q, complement):
    return variance_at(rules, -q, 1.0 + q)


def mirrored_variance_slope(rules, q):
    return -variance_slope(rules, -q)


def mirrored_edges(rules):
    low, high = edges(rules)
    return -high, -low


def mirrored_upper_end(rules, mean, level):
    return -lower_end(rules, -mean, level)


def mirrored_lower_end(rules, mean, level):
    return -upper_end(rules, -mean, level)


def mirrored_draw_mean(rules, record, n, total):
    return -draw_mean(rules, record, n, -total)


def mirrored_remainder(rules, n, total):
    return remainder(rules, n, -total)


def mirrored_tilted(rules, tilt, rate, price, n, difference, m):
    log, slope = tilted(rules, -tilt, rate, price, n, -difference, -m)
    return log, -slope


def mirrored_straightened(rules, m, shift):
    x, slope = straightened(rules, -m, -shift)
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
        ("divergence", mirrored_divergence), ("variance_at", mirrored_variance_at),
        ("variance_slope", mirrored_variance_slope), ("edges", mirrored_edges), ("upper_end", mirrored_upper_end),
        ("lower_end", mirrored_lower_end), ("draw_mean", mirrored_draw_mean), ("remainder", mirrored_remainder),
        ("tilted", mirrored_tilted), ("straightened", mirrored_straightened),
    )  # fmt: skip

    @property
    def name(self) -> str:  # type: ignore[override]
        return f"mirrored {self.inner.name}"

    parameters = property(attrgetter("inner.parameters"))
    sets_first_aside = property(attrgetter("inner.sets_first_aside"))
    shows_margins = property(attrgetter("inner.shows_margins"))
    usual_tilts = property(attrgetter("inner.usual_tilts"))

    @property
    def tilt_ranges(self) -> tuple[tuple[float, float, float], ...]:
        return tuple((-high, -low, usual) for low, high, usual in reversed(self.inner.tilt_ranges))

    def tilt(self, tilt: float) -> tuple[float, float]:
        return self.inner.tilt(-tilt)

    @lazy
    def binding(self) -> Binding:
        """Its own functions, each bound to those of the original family, as far as that has them."""
        given = self.inner.binding
        own = [(slot, specialised(each, given)) for slot, each in self.functions if not needs((each,), given)]
        more = [each for each in (evidence_at_most, evidence_at_least) if each.__name__ in dict(given)]
        return binding([*own, *more])

    def allows_mean(self, mean: float) -> bool:
        return self.inner.allows_mean(-mean)
