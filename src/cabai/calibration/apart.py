"""Where an arm within epsilon of the best is good enough, errors are most likely where rivals are just not good enough:
the hard instances of `instances.py`, with every rival epsilon further below."""

from __future__ import annotations

from cabai.calibration.instances import TIE, Hard
from cabai.families import Family
from cabai.instance import Instance

SCALES = 5.0, 0.5, 50.0  # means of exponential rewards, in units of epsilon: they look alike from any mean, it does not


def set_apart(found: list[Hard], epsilon: float, scales: tuple[float, ...] = SCALES) -> list[Hard]:
    """These instances, with the best arm epsilon further ahead; without those for which the family has no such
    means."""
    apart = []
    for each in found:
        family, means = each.instance.family, each.instance.means.tolist()
        by_scale = [(f", mean {s:g} epsilon", s * epsilon) for s in scales]
        for at, factor in by_scale if family.name == "exponential" else [("", 1.0)]:
            moved = means_apart(family, [mean * factor for mean in means], epsilon)
            if moved is not None:
                apart.append(Hard(each.what.replace("tied", "epsilon apart") + at, with_means(each.instance, moved)))
    return apart


def some_within(found: list[Hard], epsilon: float) -> list[Hard]:
    """Of instances that are set apart, those with at least three arms, where half of the best arm's rivals are now good
    enough."""
    within = []
    for each in found:
        *others, best = each.instance.means.tolist()
        half = best - 0.5 * epsilon
        if len(others) >= 2:
            close = [half if a % 2 == 0 else mean for a, mean in enumerate(others)]
            within.append(Hard(f"{each.what}, half within", with_means(each.instance, [*close, best])))
    return within


def means_apart(family: Family, means: list[float], epsilon: float) -> list[float] | None:
    """With the best raised by epsilon or, where the family has no such mean, the others lowered by it."""
    low, high = family.mean_range
    *others, best = means
    if best + epsilon < high:
        return [*others, best + epsilon]
    lowered = [max(mean - epsilon, low + 0.1 * (mean - low)) for mean in others]
    least = best - epsilon - TIE * epsilon
    return None if least <= low else [*(min(mean, least) for mean in lowered), best]


def with_means(instance: Instance, means: list[float]) -> Instance:
    return Instance(instance.family, means, instance.costs, cost_model=instance.cost_model)
