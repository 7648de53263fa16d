"""When one arm beats another, and when a run stops."""

from cabai.core.evidence import evidence, evidence_at_most
from cabai.support.specialise import required_slot, slot


@required_slot
def required(t, rules):
    """The part of the threshold that is the same for every pair of arms after t pulls; at least rules.level."""


@slot
def surplus(rules, t, b, a):
    """By how many nats b beats a after t pulls (up to epsilon, if that is not 0); negative if it does not."""
    return evidence(rules, b, a) - b.price - a.price - required(t, rules)


def surplus_of(arms, run, rules, b, a):
    return surplus(rules, run.t, arms[b], arms[a])


@slot
def beats(rules, t, b, a):
    """Whether arm record b beats arm record a after t pulls, without an epsilon.

    The test is Z_{b,a} > required(t) + price_b + price_a. required(t) is at least the level, so most pairs fail a
    cheaper test against the level alone, without logarithms.
    """
    if not evidence_at_most(rules, b, a) > rules.level + b.price + a.price:
        return False
    z = evidence(rules, b, a) - b.price - a.price
    return z > rules.level and z > required(t, rules)


def beats_of(arms, run, rules, b, a):
    return beats(rules, run.t, arms[b], arms[a])


@slot
def interval_level(arm, t, rules, arms):
    """The level of an arm's interval {q : d(mean_a, q) <= level}, per counted pull."""
    return required(t, rules) / arm.tested


@slot
def has_prices(rules):
    """Whether the evidence required for a pair depends on the arms."""
    return True


@slot
def is_settled(rules, t, b, a):
    """Whether b is shown to be better than a or, if epsilon is not 0, at most epsilon worse."""
    return beats(rules, t, b, a)


@slot
def is_worth_testing(rules, t, b, a):
    """Whether `is_settled` may be true: where this cheaper test fails, it is false."""
    return True


def leader_beats_every_rival(arms, run, rules):
    """The stopping rule: the leader beats every other arm, up to epsilon. Checks first who last prevented it."""
    leader = arms[run.leader]
    if run.rival >= 0 and run.rival != run.leader and not is_settled(rules, run.t, leader, arms[run.rival]):
        return False
    for a in range(len(arms)):
        if a != run.leader and not is_settled(rules, run.t, leader, arms[a]):
            run.rival = a
            return False
    return True


def may_beat_every_rival(arms, run, rules):
    """If not, the rival that last prevented stopping still does, and calling the rule would change nothing."""
    if run.rival < 0 or run.rival == run.leader:
        return True
    return is_worth_testing(rules, run.t, arms[run.leader], arms[run.rival])


def may_stop_at_any_time(arms, run, rules):
    """The same for any other stopping rule."""
    return True
