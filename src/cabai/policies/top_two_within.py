"""Cost-aware top-two with an epsilon: an arm within epsilon of the best is good enough."""

from cabai.core.choosing import find_challenger, find_highest
from cabai.core.within import parts_within


def coin(rules, leader, challenger):
    """h_l and h_c, with sum 1, from the two parts of the evidence that the leader is at most epsilon worse."""
    n_l, n_c = leader.pulls, challenger.pulls
    price = leader.cost / challenger.cost
    part_l, part_c = parts_within(rules, n_l, leader.mean, n_c, challenger.mean)
    if part_l > 0.0 and part_c > 0.0:
        h_l = part_l / (part_l + part_c * price)
    else:
        h_l = n_c / (n_c + n_l * price)
    return h_l, 1.0 - h_l


functions = find_highest, find_challenger, coin
