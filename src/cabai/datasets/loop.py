"""A whole race on known scores, to be compiled."""

from __future__ import annotations

from cabai.datasets.board import choose, find_leader, is_decided, tell
from cabai.support.specialise import slot


def run_race(state, order, shares, costs, prices, rank, pulls, finish):
    """One race, in which each evaluation is told before the next is chosen; returns the winner and what was paid. If
    all that is left costs at most a share `finish` of that, it is evaluated too."""
    paid = 0.0
    while True:
        leader = find_leader(state, prices)
        if is_decided(state, leader):
            left = 0.0
            for a in range(len(prices)):
                left += prices[a] * (len(order) - state.prefix[a])
            if left > 0.0 and left <= finish * paid:
                paid += evaluate_all(state, order, shares, costs, pulls)
                leader = find_leader(state, prices)
            return winner(state, leader, rank), paid
        a = choose(state, prices, leader, state.prefix)
        position = state.prefix[a]
        item = order[position]
        tell(state, a, position, shares[a, item])
        paid += costs[a, item]
        pulls[a] += 1


def evaluate_all(state, order, shares, costs, pulls):
    """Evaluate what is left of everything; returns what that costs."""
    paid = 0.0
    for a in range(len(pulls)):
        for position in range(state.prefix[a], len(order)):
            item = order[position]
            tell(state, a, position, shares[a, item])
            paid += costs[a, item]
            pulls[a] += 1
    return paid


@slot
def winner(state, leader, rank):
    """The leader or, if it has finished everything, the best of all arms that have."""
    items = state.shares.shape[1]
    found = leader
    for a in range(len(rank)):
        if state.prefix[leader] == items and state.prefix[a] == items and rank[a] < rank[found]:
            found = a
    return found
