"""Where errors are most likely: arms that are nearly tied, and how the others stand below them.

Where an arm within epsilon of the best is good enough, errors are most likely where rivals are just not good enough:
the same instances, with every rival epsilon further below.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from cabai.families import Family
from cabai.families.slots import variance_at
from cabai.instance import Instance

TIE = 1e-9  # standard deviations between arms that are nearly equal
NEAR, FAR = 0.3, 6.0  # standard deviations by which arms that are not close rivals may be worse than the best
CLOSE = 0.45  # and by which a cheap one misleads most while two others are tied
RANDOM = 24  # instances drawn at random
SCALES = 5.0, 0.5, 50.0  # means of exponential rewards, in units of epsilon: they look alike from any mean, it does not


@dataclass(frozen=True)
class Hard:
    """An instance to search, whose last arm is the best, in words."""

    what: str
    instance: Instance


def hard(what: str, family: Family, cost_model: str, arms: list[tuple[float, float]]) -> Hard:
    """From the mean and the cost of each arm, the best last. Bounded rewards are drawn as 0 and 1, which vary most."""
    means, costs = zip(*arms, strict=True)
    drawn = "bernoulli" if family.name == "bounded" else family
    return Hard(what, Instance(drawn, means, costs, cost_model=cost_model))


def hard_instances(family: Family, costs: list[float], delta: float, max_pulls: int, cost_model: str) -> list[Hard]:
    """The instances on which errors are most likely, the best arm last."""
    K, ordered = len(costs), sorted(costs)
    # which arm is the best, and the others in the order in which they are its close rivals
    places = {"most expensive": (ordered[-1], ordered[:-1]), "cheapest": (ordered[0], ordered[:0:-1])}
    if ordered[0] == ordered[-1]:
        places = {"any": places["most expensive"]}
    counts = sorted({K - 1, K // 2, 1} if K >= 6 else {K - 1, 1}, reverse=True)
    found: list[Hard] = []

    def add(what: str, best: float, near: float, far: float, price: float, others: list[float], close: int) -> None:
        """With these means of the best arm, of its close rivals, whose costs come first, and of the others."""
        arms = [*((far, cost) for cost in others[close:]), *((near, cost) for cost in others[:close]), (best, price)]
        found.append(hard(what, family, cost_model, arms))

    for level in family.typical_means:
        spread = math.sqrt(family.call(variance_at, level, 1 - level))
        far = below(family, level, FAR)
        at = "" if len(family.typical_means) == 1 else f", mean {level:g}"
        for place, (price, others) in places.items():
            where = "" if place == "any" else f", best {place}"
            for close in counts:
                rest = "all arms tied" if close == K - 1 else f"{close + 1} tied, others far below"
                add(rest + where + at, level, level - TIE * spread, far, price, others, close)
        if level == family.typical_means[0]:
            where, (price, others) = "" if "any" in places else ", best most expensive", next(iter(places.values()))
            gaps = [spread * math.sqrt(8 * K * math.log(1 / delta) / (share * max_pulls)) for share in (0.1, 0.01)]
            least = -math.inf if math.isinf(family.mean_range[0]) else level / 4
            # what a tenth, and a hundredth, of the longest run can just see
            for near in sorted({max(level - gap, least) for gap in gaps}, reverse=True):
                ahead = f"best ahead by {(level - near) / spread:.2g} sd"
                add(ahead + where + at, level, near, far, price, others, K - 1)
        if K >= 3 and "any" not in places:  # a middling arm, tied with the next more expensive one
            price, rival, *others = [ordered[a] for a in (K // 2, K // 2 + 1, *range(K // 2), *range(K // 2 + 2, K))]
            near = below(family, level, CLOSE)
            what = f"2 tied, of costs {price:.2g} (best) and {rival:.2g}, others {CLOSE:g} sd below{at}"
            add(what, level, level - TIE * spread, near, price, [rival, *others], 1)
    return found


def below(family: Family, level: float, distance: float) -> float:
    """A mean some standard deviations below a level, or about that far if the family has an edge there."""
    spread = math.sqrt(family.call(variance_at, level, 1 - level))
    if math.isinf(family.mean_range[0]):
        return level - distance * spread
    return level * math.exp(-distance * spread / level)


def more_instances(family: Family, costs: list[float], cost_model: str, seed: int) -> list[Hard]:
    """Instances among which to look for hard ones, the best arm last.

    The best arm is tied with the one whose cost is next to its own: for the most expensive, a middling and the cheapest
    arm, with the others at several distances below; the middling one also with all that are more expensive. And there
    are random ones. None has all arms tied: `hard_instances` has those. So there is none for two arms.
    """
    K, ordered = len(costs), sorted(costs)
    if K == 2:
        return []
    found: list[Hard] = []

    def add(what: str, level: float, best: int, close: list[int], gaps: dict[int, float]) -> None:
        far = [(below(family, level, gap), ordered[a]) for a, gap in gaps.items()]
        near = [(below(family, level, TIE), ordered[a]) for a in close]
        found.append(hard(what, family, cost_model, [*far, *near, (level, ordered[best])]))

    distances = {"close": [1.0], "spread": [1.0, 2.2, 4.0], "far": [FAR]}
    middle, above = K // 2, [*range(K // 2 + 1, K)]
    pairs = [(K - 1, [K - 2]), (middle, [middle - 1]), (middle, above[:1]), (0, [1])]
    for best, rivals in [*pairs, (middle, above)] if len(above) > 1 else pairs:
        rest = [a for a in range(K) if a not in (best, *rivals)]
        for how, steps in distances.items():
            gaps = {a: steps[i % len(steps)] for i, a in enumerate(rest)}
            and_rivals = ", ".join(f"{ordered[a]:.2g}" for a in rivals)
            what = f"{1 + len(rivals)} tied, of costs {ordered[best]:.2g} (best) and {and_rivals}, others {how} below"
            add(what, family.typical_means[0], best, rivals, gaps)
    random = np.random.default_rng(seed)
    for number in range(RANDOM):
        level = family.typical_means[int(random.integers(len(family.typical_means)))]
        best, *others = random.permutation(K).tolist()
        close = min(int(random.geometric(0.5)), K - 2)  # a single rival is as likely as several
        exponents = random.random(K - 1 - close) if number % 3 else [random.random()] * (K - 1 - close)
        gaps = {a: NEAR * (FAR / NEAR) ** x for a, x in zip(others[close:], exponents, strict=True)}
        what = f"random {number + 1}: {close + 1} tied, best costs {ordered[best]:.2g}"
        add(what, level, best, others[:close], gaps)
    return found


def set_apart(found: list[Hard], epsilon: float, scales: tuple[float, ...] = SCALES) -> list[Hard]:
    """These instances, with the best arm epsilon further ahead, as far as the family has such means."""
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
    """Of instances set apart, those with three arms or more: half of the best arm's rivals are now good enough."""
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
