"""A policy of one's own, compared with co and ctas on the paper's Gaussian instance."""

import math

import cabai


@cabai.policy
def closest_rival(arms, run, rules):
    """Take the leader and the rival hardest to tell from it; pull the one with the smaller sqrt(cost) N."""
    leader = arms[run.leader]
    rival, least = -1, math.inf
    for a in range(len(arms)):
        if a != run.leader:
            gap = leader.mean - arms[a].mean
            evidence = gap * gap / (2 * rules.variance * (1 / leader.pulls + 1 / arms[a].pulls))
            distance = evidence + math.log(arms[a].pulls)  # the logarithm: no arm is forgotten after an unlucky start
            if distance < least:
                rival, least = a, distance
    if math.sqrt(leader.cost) * leader.pulls <= math.sqrt(arms[rival].cost) * arms[rival].pulls:
        return run.leader
    return rival


if __name__ == "__main__":
    instance = cabai.Instance("gaussian", means=[1.5, 1.0, 0.5], costs=[1, 0.1, 0.01])
    print(cabai.compare(instance, [closest_rival, "co", "ctas"], delta=0.05, seed=0))
