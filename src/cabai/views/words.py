"""Format numbers and times for people."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime


def number(value: float | None, digits: int = 4) -> str:
    """A number with a few digits; empty for None.

    >>> number(0.123456), number(1234567.0), number(None), number(12, 6)
    ('0.1235', '1.235e+06', '', '12')
    """
    return "" if value is None else f"{value:.{digits}g}"


def money(value: float | None) -> str:
    """An amount, without an exponent if possible.

    >>> money(1234567.891), money(0.0123456), money(3), money(1e-9)
    ('1,234,568', '0.01235', '3', '1e-09')
    """
    if value is None:
        return ""
    if 1000 <= abs(value) < 1e12:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def rough(value: float, digits: int = 2) -> str:
    """A number that was estimated: two digits, without an exponent if possible.

    >>> rough(1.191), rough(16.47), rough(123456), rough(0.0), rough(123456, 3)
    ('1.2', '16', '120,000', '0', '123,000')
    """
    return money(float(f"{value:.{digits}g}"))


def percent(share: float | None) -> str:
    """A share in percent: 100 % only if it is exactly 1, 0 % only if it is exactly 0.

    >>> percent(0.5), percent(0.9999), percent(1.0), percent(0.001), percent(0.0)
    ('50 %', 'more than 99 %', '100 %', 'less than 1 %', '0 %')
    """
    if share is None:
        return ""
    if 0 < share < 0.01:
        return "less than 1 %"
    if 0.99 < share < 1:
        return "more than 99 %"
    return f"{share:.0%}".replace("%", " %")


def moment(time: float | None) -> str:
    """A time, in UTC.

    >>> moment(0.0), moment(None)
    ('1970-01-01 00:00:00 UTC', '')
    """
    if time is None:
        return ""
    try:
        return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError, OSError):
        return "unknown"


def duration(seconds: float) -> str:
    """A duration, roughly.

    >>> [duration(each) for each in (0.3, 75, 4000, 200_000)]
    ['0 s', '1 min 15 s', '1 h 6 min', '2 d 7 h']
    """
    whole = max(int(seconds), 0) if math.isfinite(seconds) else 0
    parts = [(whole // 86400, "d"), (whole // 3600 % 24, "h"), (whole // 60 % 60, "min"), (whole % 60, "s")]
    first = next((i for i, (count, _) in enumerate(parts) if count), 3)
    return " ".join(f"{count} {unit}" for count, unit in parts[first : first + 2])


def in_words(number: int) -> str:
    """A small number as a word."""
    words = ["two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
    return words[number - 2] if 2 <= number <= 12 else str(number)


def either(names: Sequence[str]) -> str:
    return " or ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def listed(names: Sequence[str], most: int = 10) -> str:
    """Some names, and how many more there are."""
    return ", ".join(names) if len(names) <= most else f"{', '.join(names[:most])} and {len(names) - most} others"


def rounded_up(value: float) -> str:
    """One digit, or two if the first is below 5 or a 9; never rounded down.

    >>> rounded_up(0.006742), rounded_up(0.0231), rounded_up(0.05), rounded_up(0.0), rounded_up(1.5)
    ('0.007', '0.024', '0.05', '0', '1.5')
    """
    if not 0 < value < math.inf:
        return f"{value:g}"
    step = 10.0 ** math.floor(math.log10(value))
    step = step if 5 * step <= value < 9 * step else step / 10
    count = math.ceil(value / step)
    text = f"{count * step:.2g}"
    return f"{float(text if float(text) >= value else f'{(count + 1) * step:.2g}'):g}"


def decimals(low: float | None, high: float | None) -> int | None:
    """How many decimals mean something, if a number lies between these; None: that is not known."""
    if low is None or high is None or not 0 < high - low < math.inf:
        return None
    return min(max(1 - math.floor(math.log10((high - low) / 2)), 0), 12)


def decimals_of_mean(count: int, width: float) -> int | None:
    """The same for the mean of `count` scores in a range of this width: about two standard errors, at most."""
    away = width / math.sqrt(count) if count else 0.0
    return decimals(-away, away)


def fixed(value: float | None, digits: int | None) -> str:
    """A number with that many decimals, or else roughly."""
    if value is None:
        return ""
    return rough(value, 3) if digits is None else f"{value:.{digits}f}"


def lasting(seconds: float) -> str:
    """Roughly how long that is: 40 s, 12 min, 3 h, 2 days."""
    for size, unit in ((86400.0, "days"), (3600.0, "h"), (60.0, "min")):
        if seconds >= 1.5 * size:
            return f"{float(f'{seconds / size:.2g}'):g} {unit}"
    return f"{math.ceil(seconds)} s"


def difference(value: float, digits: int | None) -> str:
    """A difference of two means, with as many decimals as mean something.

    >>> difference(0.0361, 3), difference(0.3, 2), difference(0.0015, 2), difference(0.0, 2), difference(0.0361, None)
    ('0.036', '0.30', 'less than 0.01', '0', '0.036')
    """
    if digits is None or value == 0:
        return rough(value)
    least = 10.0**-digits
    return f"{value:,.{digits}f}" if abs(value) >= least / 2 else f"less than {least:g}"
