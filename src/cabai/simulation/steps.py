"""How often an arm is pulled before the policy is asked again: once, as in a study, or in steps where that would take
too long."""

from __future__ import annotations

from cabai.support.specialise import slot

EXACT = 1000  # pulls up to which steps make no difference


@slot
def pulls_of_a_choice(run):
    return 1


def more_as_it_grows(run):
    """One more for every EXACT pulls made: each step adds 0.1 % to the pulls. Most of the time is spent on choosing and
    testing."""
    return 1 + run.t // EXACT
