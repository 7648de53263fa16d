"""The cheapest arm that is good enough: exclude cheaper arms that are too bad, and show that the next one is good.

An arm is *excluded* once some arm is shown to be better by more than epsilon - slack. The *candidate* is the cheapest
arm to run that is not excluded. The proof is in docs/theory/cheapest.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from cabai.core.goal import CHEAPEST
from cabai.core.state import Fields
from cabai.core.within import is_shown, parts_shown
from cabai.policies.base import Policy
from cabai.support.streams import uniform
from cabai.support.validation import true_or_false

EXPLORED = 16.0  # the smallest N_a C_a is at least the sum of all costs over this
PRICE = 2.0  # roughly what a pair needs above the level, in nats


def stop(arms, run, rules):
    """Whether the candidate is shown to be good. A pair is tested again only if one of its arms was pulled, or nothing
    is remembered; what was shown once stays shown. The decision is the leader, so finally the candidate becomes it."""
    last = run.last
    for b in range(len(arms)):
        for a in range(len(arms)):
            if b != a and (b == last or a == last or run.candidate < 0):
                exclude(arms, run, rules, b, a)
    c = find_candidate(arms)
    if c < 0:  # all are excluded, one of them wrongly: if only the most expensive is good, it may have been that one
        run.leader = 0
        for a in range(len(arms)):
            if is_cheaper(arms, run.leader, a):
                run.leader = a
        return True
    every = c == last or c != run.candidate
    run.candidate = c
    is_good = True
    for a in range(len(arms)):
        if a != c and arms[a].cleared_for != c:
            if (every or a == last) and is_shown(rules, run.t, arms[c], arms[a], rules.epsilon):
                arms[a].cleared_for = c
            else:
                is_good = False
    if is_good:
        run.leader = c
    return is_good


def exclude(arms, run, rules, b, a):
    """Exclude arm a if b is shown to be better by more than the margin."""
    if not arms[a].excluded and is_shown(rules, run.t, arms[b], arms[a], -rules.margin):
        arms[a].excluded = 1


def is_cheaper(arms, a, b):
    """Whether arm a costs less to run than b; equal costs are ordered by index."""
    cost_a, cost_b = cost_to_run(arms[a]), cost_to_run(arms[b])
    return cost_a < cost_b or (cost_a == cost_b and a < b)


def cost_to_run(arm):
    """The declared running cost, or else the mean cost of its pulls."""
    return arm.running_cost if arm.running_cost >= 0.0 else arm.cost


def find_candidate(arms):
    """The cheapest arm that is not excluded; -1 if all are excluded."""
    c = -1
    for a in range(len(arms)):
        if not arms[a].excluded and (c < 0 or is_cheaper(arms, a, c)):
            c = a
    return c


def choose(arms, run, rules):
    a = find_neglected(arms)
    if arms[a].costs * arms[a].pulls < run.counted / EXPLORED:
        return a
    if rules.is_uniform:
        return least_pulled(arms, run, rules)
    answer = likely_answer(arms, run, rules)
    b, a, epsilon = weakest_pair(arms, run, rules, answer)
    part_b, part_a = parts_shown(rules, arms[b], arms[a], epsilon)
    price = arms[b].cost / arms[a].cost
    if part_b > 0.0 and part_a > 0.0:
        h_b, h_a = part_b, part_a * price
    else:
        h_b, h_a = 1.0 * arms[a].pulls, arms[b].pulls * price
    return b if uniform(run) * (h_b + h_a) < h_b else a


def find_neglected(arms):
    """The arm with the smallest N_a C_a."""
    found = 0
    for a in range(len(arms)):
        if arms[a].costs * arms[a].pulls < arms[found].costs * arms[found].pulls:
            found = a
    return found


def likely_answer(arms, run, rules):
    """The cheapest arm, not excluded, at most the midpoint of epsilon and the margin worse than the best."""
    answer = run.leader
    for a in range(len(arms)):
        is_likely = not arms[a].excluded and arms[a].mean >= arms[run.leader].mean - rules.middle
        if is_likely and is_cheaper(arms, a, answer):
            answer = a
    return answer


def weakest_pair(arms, run, rules, answer):
    """Among the pairs still to be shown for this answer, the one with the least evidence: (b, a, epsilon), where b must
    be shown to be at most epsilon worse than a, or better by more than -epsilon."""
    b, a = answer, run.leader if run.leader != answer else (answer + 1) % len(arms)
    epsilon, least = rules.epsilon, np.inf
    for i in range(len(arms)):
        if i != answer and (arms[i].cleared_for != answer or run.candidate != answer):
            part_b, part_a = parts_shown(rules, arms[answer], arms[i], rules.epsilon)
            if part_b + part_a < least:
                b, a, epsilon, least = answer, i, rules.epsilon, part_b + part_a
        if i != answer and not arms[i].excluded and is_cheaper(arms, i, answer):
            j = find_witness(arms, run, rules, i)
            part_b, part_a = parts_shown(rules, arms[j], arms[i], -rules.margin)
            if part_b + part_a < least:
                b, a, epsilon, least = j, i, -rules.margin, part_b + part_a
    return b, a, epsilon


def find_witness(arms, run, rules, a):
    """The arm that can be shown to be better than a by more than the margin at the least cost, if the means are as they
    seem: the smallest (missing evidence) (sqrt(cost) + sqrt(cost_a))² / gap²."""
    found, least = run.leader, np.inf
    for j in range(len(arms)):
        gap = arms[j].mean - arms[a].mean - rules.margin
        if j != a and gap > 0.0:
            part_j, part_a = parts_shown(rules, arms[j], arms[a], -rules.margin)
            missing = max(rules.level + PRICE - part_j - part_a, 0.1)
            root = (math.sqrt(arms[j].cost) + math.sqrt(arms[a].cost)) / gap
            if missing * root * root < least:
                found, least = j, missing * root * root
    return found


def least_pulled(arms, run, rules):
    """Among the arms that still matter, the one with the fewest pulls: the leader, the candidate, every arm that the
    candidate is not yet shown to be close enough to, and every cheaper arm that is not excluded."""
    found, c = run.leader, find_candidate(arms)
    for a in range(len(arms)):
        is_good_or_open = a == c or (c >= 0 and arms[a].cleared_for != c)
        is_open = is_good_or_open or (not arms[a].excluded and is_cheaper(arms, a, c))
        if is_open and arms[a].pulls < arms[found].pulls:
            found = a
    return found


@dataclass(frozen=True)
class CheapestGoodEnough(Policy):
    """Find the cheapest arm to run among those at most epsilon worse than the best; for the goal `cheapest`.

    The answer must be shown to be at most epsilon worse than each other arm, and each cheaper arm to be worse than some
    arm by more than epsilon - slack. Of all these pairs, take the one with the least evidence, and pull one of its arms
    at random, as top-two does. No arm's N C falls below a sixteenth of the costs so far, so the run ends.
    `uniform=True` pulls the arms that still matter in turn; it is a baseline to compare with.

    >>> import cabai
    >>> instance = cabai.Instance("bernoulli", means=[0.9, 0.85], costs=[1, 0.1])
    >>> runs = cabai.simulate(instance, goal="cheapest", epsilon=0.2, trajectories=20)
    >>> runs.policy, runs.summary().errors
    ('cheapest', 0)
    """

    uniform: bool = False
    name = "cheapest"
    goal = CHEAPEST
    choose = staticmethod(choose)
    stop = staticmethod(stop)
    depends_on_delta = True
    arm_memory: ClassVar[Fields] = {
        "running_cost": -1.0,  # as declared; negative: the cost of its pulls
        "excluded": 0,
        "cleared_for": -1,  # the arm that was shown to be at most epsilon worse than this one
    }
    run_memory: ClassVar[Fields] = {"candidate": -1}  # the arm that was last tested against every other arm
    keeps_of_arms = tuple(arm_memory)  # what was shown once stays shown

    def __post_init__(self) -> None:
        true_or_false(self.uniform, "uniform")

    def parameters(self, arms: int) -> dict[str, float]:
        return {"margin": 0.0, "middle": 0.0, "is_uniform": self.uniform}
