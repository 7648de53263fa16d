"""ctas that stops pulling arms it has beaten, compared with ctas on ten arms of different costs."""

import math

import cabai
from cabai.core.shares import ARM_MEMORY, ARM_SCRATCH, RUN_MEMORY, allocate
from cabai.policies import CO
from cabai.policies.co import stop as drop_beaten


def balance(arms):
    """co's rule: the arm in play with the smallest sqrt(cost) N."""
    chosen = -1
    for a in range(len(arms)):
        if arms[a].in_play and (chosen < 0 or arms[a].costs * arms[a].pulls < arms[chosen].costs * arms[chosen].pulls):
            chosen = a
    return chosen


# What `allocate` and co's rule keep from one pull to the next has to have its fields.
@cabai.policy(stop=drop_beaten, arm_memory=ARM_MEMORY | ARM_SCRATCH, run_memory=RUN_MEMORY | CO.run_memory)
def eliminating_ctas(arms, run, rules):
    """Among the arms in play, explore below sqrt(t) - K/2 pulls, else pull the one with the largest w / C."""
    least = -1
    for a in range(len(arms)):
        if arms[a].in_play and (least < 0 or arms[a].pulls < arms[least].pulls):
            least = a
        if not arms[a].in_play and arms[a].mean >= arms[run.leader].mean:
            return balance(arms)  # an arm that is out looks best again: no shares to follow
    if arms[least].pulls < math.sqrt(run.t) - len(arms) / 2:
        return least
    allocate(arms, run, rules)
    chosen = -1
    for a in range(len(arms)):
        if arms[a].in_play and (chosen < 0 or arms[a].share / arms[a].costs > arms[chosen].share / arms[chosen].costs):
            chosen = a
    return chosen


if __name__ == "__main__":
    means = [1.0, 0.6, 0.55, 0.5, 0.45, 0.4, 0.35, 0.3, 0.25, 0.2]
    costs = [0.03, 0.6, 0.08, 1, 0.02, 0.2, 0.4, 0.05, 0.01, 0.1]
    instance = cabai.Instance("gaussian", means, costs)
    policies = ["ctas", "ctas(slack=0.5, tracking=ratio)", eliminating_ctas, "co"]
    print(cabai.compare(instance, policies, delta=0.05, threshold="evalue", trajectories=400, seed=0))
