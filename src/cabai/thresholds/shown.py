"""Tests of pairs whose `is_shown`, `excess` and `may_be_shown` take any epsilon: their other functions."""

from __future__ import annotations

from cabai.core.within import is_shown
from cabai.support.specialise import slot


def required(t, rules):
    return rules.level


def has_prices(rules):
    return False


def beats(rules, t, b, a):
    return is_shown(rules, t, b, a, 0.0)


def is_settled(rules, t, b, a):
    return is_shown(rules, t, b, a, rules.epsilon)


def is_worth_testing(rules, t, b, a):
    return may_be_shown(rules, b, a, rules.epsilon)


@slot
def may_be_shown(rules, b, a, epsilon):
    """Whether `is_shown` may be true: where this cheaper test fails, it is false."""
    return True
