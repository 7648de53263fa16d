"""How many requests come from one address: a runaway loop must not keep others from the server."""

from __future__ import annotations

import time

RATE, BURST = 1000.0, 2000.0  # requests per second, on average and in a burst: more than one process can answer
MOST_ADDRESSES = 10_000


class Rates:
    """A bucket per address, which fills with time.

    >>> rates = Rates(rate=10, burst=2)
    >>> [rates.wait("here", now) for now in (0.0, 0.0, 0.0, 0.2)]
    [None, None, 0.1, None]
    >>> rates.wait("there", 0.0) is None
    True
    """

    def __init__(self, rate: float = RATE, burst: float = BURST) -> None:
        self.rate, self.burst = rate, burst
        self._left: dict[str, tuple[float, float]] = {}  # requests that are left, and as of when

    def wait(self, address: str, now: float | None = None) -> float | None:
        """Count a request; if it comes too soon, returns after how many seconds the next is allowed."""
        now = time.monotonic() if now is None else now
        if address not in self._left and len(self._left) >= MOST_ADDRESSES:
            self._left.clear()
        left, before = self._left.get(address, (self.burst, now))
        left = min(left + (now - before) * self.rate, self.burst)
        if left < 1:
            self._left[address] = (left, now)
            return (1 - left) / self.rate
        self._left[address] = (left - 1, now)
        return None
