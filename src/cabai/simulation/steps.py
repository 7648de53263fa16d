"""One simulated pull; and how often an arm is pulled before the policy is asked again: once, as in a study, or in
steps where that would take too long."""

from __future__ import annotations

from cabai.core.observe import observe
from cabai.families.slots import draw
from cabai.simulation.costs import draw_cost
from cabai.support.specialise import slot

EXACT = 1000  # pulls up to which steps make no difference


def pull(arms, run, rules, a, truth):
    """Pull arm a, unless that would exceed the budget, which is returned: then the run ends with its leader."""
    cost = draw_cost(truth)
    if run.spent + cost > rules.budget * (1.0 + 1e-12):  # up to rounding
        return True
    observe(arms, run, rules, a, draw(truth), cost)
    return False


@slot
def pulls_of_a_choice(run):
    return 1


def more_as_it_grows(run):
    """One more for every EXACT pulls made: each step adds 0.1 % to the pulls. Most of the time is spent on choosing and
    testing."""
    return 1 + run.t // EXACT
