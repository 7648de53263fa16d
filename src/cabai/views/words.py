"""Format numbers and times for people."""

from __future__ import annotations

import math
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


def rough(value: float) -> str:
    """An amount that was estimated: two digits.

    >>> rough(1.191), rough(16.47), rough(123456), rough(0.0)
    ('1.2', '16', '120,000', '0')
    """
    return money(float(f"{value:.2g}"))


def percent(share: float | None) -> str:
    """A share in percent: 100 % only if it is exactly 1, 0 % only if it is exactly 0.

    >>> percent(0.5), percent(0.9999), percent(1.0), percent(0.001), percent(0.0)
    ('50 %', '>99 %', '100 %', '<1 %', '0 %')
    """
    if share is None:
        return ""
    if 0 < share < 0.01:
        return "<1 %"
    if 0.99 < share < 1:
        return ">99 %"
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
