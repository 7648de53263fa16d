"""Who may do what, and how often: one token for reading, one for working; without a token, nothing."""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
import time
from collections.abc import Mapping
from pathlib import Path

from cabai.support.validation import InvalidInput

READ, WORK = KINDS = ("read", "work")
SHORTEST = 32  # characters: too long to guess
ATTEMPTS, WINDOW = 10, 60.0  # wrong tokens from one address at once, and seconds in which as many more may follow
MOST_ADDRESSES = 10_000  # that are remembered
RATE, BURST = 1000.0, 2000.0  # requests per second, on average and in a burst: more than one process can answer


class Rates:
    """How many requests an address may send: a bucket each, which fills with time. A runaway loop must not keep others
    from the server.

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


class Access:
    """The tokens of a server, by kind.

    >>> access = Access.new()
    >>> access.kind_of("something else") is None, access.kind_of(access.tokens["work"])
    (True, 'work')
    """

    def __init__(self, tokens: Mapping[str, str]) -> None:
        for kind in KINDS:
            if not re.fullmatch(rf"[\w.~+/=-]{{{SHORTEST},200}}", tokens.get(kind, ""), re.ASCII):
                raise InvalidInput(
                    f"the {kind} token must be random, with {SHORTEST} to 200 letters, digits or -_.~+/=."
                )
        if digest(tokens[READ]) == digest(tokens[WORK]):
            raise InvalidInput("the tokens for reading and for working must be different.")
        self.tokens = dict(tokens)
        self._digests = {kind: digest(tokens[kind]) for kind in KINDS}
        # Cookies ignore ports: two servers on one machine must not share one.
        self.cookie = f"cabai_{hashlib.sha256(b'cookie' + self._digests[WORK]).hexdigest()[:12]}"
        self.pass_ = hashlib.sha256(b"pass" + self._digests[READ]).hexdigest()  # the value of the cookie: read-only
        self.wrong = Rates(ATTEMPTS / WINDOW, ATTEMPTS)  # tokens, by address

    @classmethod
    def new(cls) -> Access:
        return cls({kind: secrets.token_urlsafe(32) for kind in KINDS})

    def kind_of(self, token: str) -> str | None:
        """What a token is for. Takes the same time for every token."""
        given, found = digest(token), None
        for kind, known in (*self._digests.items(), (READ, digest(self.pass_))):
            if hmac.compare_digest(given, known):
                found = kind
        return found


def digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def tokens_in(file: str) -> Access:
    """The tokens in a file, one per line: `work TOKEN` and `read TOKEN`. If the file does not exist, it is created."""
    path = Path(file)
    if not path.exists():
        access = Access.new()
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w", encoding="ascii") as out:
            out.write("".join(f"{kind} {token}\n" for kind, token in access.tokens.items()))
        return access
    rows = [line.split() for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    if sorted(row[0] for row in rows) != sorted(KINDS) or any(len(row) != 2 for row in rows):
        raise InvalidInput(f"{file} must have two lines, `work TOKEN` and `read TOKEN`.")
    return Access(dict(rows))
