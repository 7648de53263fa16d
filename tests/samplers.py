"""Policies that know which arm is the best, and try to mislead a test; and laws of arms that are all but tied."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

import cabai
from cabai import Instance
from cabai.core.stopping import beats
from cabai.families import UnknownVariance
from cabai.support.streams import normal, uniform


def follow(arms, run, rules):
    """Always the leader: the others stay as unlucky as they were."""
    return run.leader


def spoil(arms, run, rules):
    """Pulls the best while it looks good, and leaves it as soon as it looks bad."""
    best = len(arms) - 1
    other = run.t % best
    return best if arms[best].mean >= arms[other].mean else other


def hunt(arms, run, rules):
    """Pulls the rival that is closest to beating the best, and the best itself when that rival is behind."""
    best, closest, most = len(arms) - 1, 0, -np.inf
    for a in range(best):
        n = arms[a].pulls * arms[best].pulls / (arms[a].pulls + arms[best].pulls)
        gap = arms[a].mean - arms[best].mean
        if gap * abs(gap) * n > most:
            closest, most = a, gap * abs(gap) * n
    return closest if most > 0.0 and run.t % 4 != 0 else best


def lurk(arms, run, rules):
    """Knows the level: hardly pulls the best once it looks bad, and then gives its rivals turns."""
    best = len(arms) - 1
    if arms[best].mean >= arms[run.leader].mean or arms[best].pulls < 3:
        return best
    return best if run.t % 16 == 0 else run.t % best


def in_turn(arms, run, rules):
    return run.t % len(arms)


def press(arms, run, rules):
    """Knows what counts for `champion`: pulls the best rival while the counted rewards look good, the best while it
    looks bad, and else the rival that may take the lead."""
    best = len(arms) - 1
    rival, other = -1, -1
    for a in range(best):
        if rival < 0 or arms[a].mean > arms[rival].mean:
            rival, other = a, rival
        elif other < 0 or arms[a].mean > arms[other].mean:
            other = a
    n = arms[best].rivals
    if n == 0:
        return rival
    ahead = arms[best].rival_rewards / n - arms[best].mean
    if ahead > 0.0:
        return rival if n < 4 * arms[best].pulls else best
    return other if other >= 0 and run.t % 3 != 0 else best


def stake(arms, run, rules):
    """Knows the common mean 0.5 and the stakes of `hedged`: pulls the arm whose next stakes promise most."""
    own = arms[0].stakes
    up, down, staked = own[0], own[1], own[2]
    lucky, unlucky = staked - 0.5 * (up - down), arms[1].mean < 0.5
    if lucky > 0.0:
        return 0 if up - down < 1.0 or run.t % 5 == 0 else 1
    return 1 if unlucky or run.t % 2 == 0 else 0


def tip(arms, run, rules):
    """Knows the common mean 0.5: lets the sums of stakes of `hedged` grow on the side that is lucky."""
    own, other = arms[0].stakes, arms[1].stakes
    out_of_balance = own[0] - own[1] - other[0] + other[1]
    return 0 if (arms[0].mean > 0.5) == (out_of_balance < 3.0) else 1


def tip_rivals(arms, run, rules):
    """The same with the stakes of `champion` for three or four arms: pulls the best arm or the rival that counts for
    it, and another one while nothing counts."""
    best, own = len(arms) - 1, arms[len(arms) - 1]
    rival = 0
    for a in range(1, best):
        if arms[a].mean > arms[rival].mean:
            rival = a
    if run.t % 7 == 0:
        return run.t % best
    out_of_balance = own.rival_stakes[0] - own.rival_stakes[1] - own.stakes[0] + own.stakes[1]
    return rival if (arms[rival].mean > 0.5) == (out_of_balance < 3.0) else best


def stake_rivals(arms, run, rules):
    """Knows the common mean 0.5 and those stakes: lets what the sequence for the rivals is worth grow while it does, on
    one side."""
    best, own = len(arms) - 1, arms[len(arms) - 1]
    rival = run.leader if run.leader != best else run.t % best
    up, down, staked = own.rival_stakes[0], own.rival_stakes[1], own.rival_stakes[2]
    if staked - 0.5 * (up - down) > 0.0:
        return rival if up - down < 1.0 or run.t % 5 == 0 else best
    return best if own.mean < 0.5 or run.t % 2 == 0 else rival


def in_blocks(arms, run, rules):
    """Long blocks of one arm: the order for which the stakes of `hedged` fit worst."""
    return 0 if math.log(run.t + 1.0) * 2.0 % 2.0 < 1.0 else 1


def rejected(arms, run, rules):
    """Whether any arm beats the best one: all that can go wrong, whatever is decided."""
    best = len(arms) - 1
    for a in range(best):  # noqa: SIM110
        if beats(rules, run.t, arms[a], arms[best]):
            return True
    return False


PLAIN = {name: name for name in ("uniform", "co", "top-two")}
KNOWING = follow, spoil, hunt
SAMPLERS = PLAIN | {each.__name__: cabai.policy(each) for each in KNOWING}
#: These stop as soon as the best arm is beaten.
ATTACKS = {
    each.__name__: cabai.policy(each, stop=rejected)
    for each in (press, lurk, in_turn, stake, tip, stake_rivals, tip_rivals, in_blocks, *KNOWING)
}


MEANS = {"gaussian": 0.5, "bernoulli": 0.5, "poisson": 1.5, "exponential": 1.0}
BOUNDED = {
    "beta": (0.6, "beta", 0.05), "bimodal": (0.5, "beta", 0.45), "any in [0, 1]": (0.5, "uniform", None),
    "0 or 1": (0.5, "two-point", None), "mostly 0": (0.02, "two-point", None),
}  # fmt: skip
RARE = [1.0] * 49 + [0.02]  # mean 0.9804


def draw_uniform(arm):
    return arm.mean + arm.spread * (uniform(arm) - 0.5) * math.sqrt(12.0)


def draw_two_point(arm):
    return arm.mean + (arm.spread if uniform(arm) < 0.5 else -arm.spread)


def draw_laplace(arm):
    sign = 1.0 if uniform(arm) < 0.5 else -1.0
    return arm.mean - sign * arm.spread * math.log(1.0 - uniform(arm)) / math.sqrt(2.0)


def draw_t3(arm):
    x, y, z = normal(arm), normal(arm), normal(arm)
    return arm.mean + arm.spread * normal(arm) / math.sqrt(x * x + y * y + z * z)


#: Laws that are symmetric, with a variance that is not known.
SYMMETRIC = {"uniform": draw_uniform, "two-point": draw_two_point, "laplace": draw_laplace, "t3": draw_t3}


def drawn_by(draw):
    own = type("Own", (UnknownVariance,), {"functions": (*UnknownVariance.functions, ("draw", draw))})
    return dataclass(frozen=True)(own)()


def tied(law, arms, gap=1e-9):
    """All arms of one law, but for a gap by which the last is better."""
    costs, means = np.linspace(1, 0.3, arms), np.array([-gap] * (arms - 1) + [0.0])
    if law == "rare zeros":  # the best arm is now and then a disaster, which takes a while to be seen
        better = [y + gap if y < 0.5 else y - gap / 99 for y in RARE]
        return Instance.of_samples("bounded", [[float(np.mean(better)) - 2 * gap] * 50] * (arms - 1) + [better], costs)
    if law in BOUNDED:
        mean, kind, sd = BOUNDED[law]
        return Instance("bounded", means + mean, costs, law=kind, sd=sd)
    if law == "unknown variance" or law in SYMMETRIC:
        family = drawn_by(SYMMETRIC[law]) if law in SYMMETRIC else UnknownVariance()
        return Instance(family, means, costs, sd=([1.0, 3.0] if arms == 2 else [1.0, 9.0, 3.0] * 4)[:arms])
    family, _, mean = law.partition(" ")
    return Instance(family, means + (float(mean) if mean else MEANS[family]), costs)
