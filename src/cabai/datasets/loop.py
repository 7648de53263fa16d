"""A whole race on known scores, to be compiled."""

from __future__ import annotations

from cabai.datasets.board import choose, find_leader, is_decided, tell
from cabai.support.specialise import slot


def run_race(state, order, shares, costs, prices, rank, pulls):
    """One race, in which each evaluation is told before the next is chosen; returns the winner and what was paid."""
    paid = 0.0
    while True:
        leader = find_leader(state, prices)
        if is_decided(state, leader):
            return winner(state, leader, rank), paid
        a = choose(state, prices, leader, state.prefix)
        position = state.prefix[a]
        item = order[position]
        tell(state, a, position, shares[a, item])
        paid += costs[a, item]
        pulls[a] += 1


@slot
def winner(state, leader, rank):
    """The leader or, if it has finished everything, the best of all arms that have."""
    items = state.shares.shape[1]
    found = leader
    for a in range(len(rank)):
        if state.prefix[leader] == items and state.prefix[a] == items and rank[a] < rank[found]:
            found = a
    return found
