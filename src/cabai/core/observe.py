"""How an observation changes the state."""

import numpy as np

from cabai.support.specialise import slot


def observe(arms, run, rules, a, reward, cost):
    """Record pull number t + 1: arm a returned `reward` and cost `cost`."""
    credit(arms, run, rules, a, 1, reward)
    arm = arms[a]
    charged = 1.0 if rules.cost_blind else cost
    if arm.pulls == 0:
        arm.first = reward
    arm.pulls += 1
    arm.rewards += reward
    arm.costs += charged
    arm.mean = arm.rewards / arm.pulls
    arm.cost = arm.costs / arm.pulls
    run.t += 1
    run.counted += charged
    run.spent += cost
    run.last = a
    keep(arm, rules, reward)
    weigh(arm, rules)
    if arm.in_play:
        find_leader(arms, run, a)


def observe_sum(arms, run, rules, a, pulls, reward, cost, charged):
    """Record several pulls of arm a at once, whose rewards have this sum: what they cost, and what that counts as. For
    a threshold that keeps nothing of single rewards; `credit` was called before."""
    arm = arms[a]
    charged = 1.0 * pulls if rules.cost_blind else charged
    if arm.pulls == 0:
        arm.first = reward / pulls
    arm.pulls += pulls
    arm.rewards += reward
    arm.costs += charged
    arm.mean, arm.cost = arm.rewards / arm.pulls, arm.costs / arm.pulls
    run.spent += cost
    run.counted += charged
    run.t += pulls
    run.last = a
    weigh(arm, rules)
    if arm.in_play:
        find_leader(arms, run, a)


@slot
def credit(arms, run, rules, a, pulls, reward):
    """Update what the threshold keeps about several arms, before the records of arm a change: `pulls` pulls of it
    returned rewards with this sum."""


@slot
def keep(arm, rules, reward):
    """Add a reward to the fields that the threshold keeps per arm."""


@slot
def weigh(arm, rules):
    """Update what the threshold needs after an arm's data changed: arm.tested, arm.tested_mean, arm.price."""
    arm.tested = arm.pulls
    arm.tested_mean = arm.mean


def find_leader(arms, run, changed):
    """Update run.leader, the arm in play with the best mean, after the mean of arm `changed` changed.

    run.second is an upper bound on every other mean in play, so a search through all arms is only needed if the leader
    falls to it.
    """
    mean = arms[changed].mean
    if changed != run.leader:
        best = arms[run.leader].mean if run.leader >= 0 else -np.inf
        if mean > best or (mean == best and changed < run.leader):
            run.leader = changed
            run.second = max(run.second, best)
        else:
            run.second = max(run.second, mean)
    elif not mean > run.second:
        leader = -1
        for a in range(len(arms)):
            arm = arms[a]
            if arm.in_play and arm.pulls > 0 and (leader < 0 or arm.mean > arms[leader].mean):
                leader = a
        run.leader = leader
        run.second = -np.inf
        for a in range(len(arms)):
            arm = arms[a]
            if a != leader and arm.in_play and arm.pulls > 0:
                run.second = max(run.second, arm.mean)
