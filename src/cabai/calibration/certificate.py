"""The result of a calibration, to be stored and shown."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cabai import views
from cabai.support.files import write_whole
from cabai.support.tables import table
from cabai.support.validation import InvalidInput
from cabai.thresholds import Calibrated, certified_in, threshold_of


@dataclass(frozen=True)
class Searched:
    """One instance that was searched, and what was seen on it at the c that was certified."""

    what: str
    means: list[float]
    costs: list[float]
    trajectories: int
    errors: int
    upper_limit: float  # of the error rate, at the certificate's confidence

    @property
    def rate(self) -> float:
        return self.errors / self.trajectories


@dataclass(frozen=True)
class Certificate:
    """The result of `cabai.calibrate`: a threshold, what is known about it, and how surely.

    With probability `confidence`, the search has given a threshold for which this is true: on each instance in
    `searched`, the policy drops the best arm or returns another one within `max_pulls` pulls with probability at most
    delta. With an epsilon, an arm is wrong if it is worse than the best by more than epsilon. It says nothing about
    other instances, nor about later pulls.

    >>> import cabai, tempfile
    >>> found = cabai.calibrate("gaussian", [1, 1], "racing", delta=0.2, max_pulls=20, trajectories=300)
    >>> found.policy, found.delta, found.to_dict()["max_pulls"], found.confidence, 0 < found.c < 10
    ('racing', 0.2, 20, 0.99, True)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found.save(f"{folder}/trial.json")
    ...     Certificate.load(f"{folder}/trial.json") == found
    True
    """

    threshold: str
    policy: str
    family: str
    costs: list[float]
    cost_model: str
    delta: float
    max_pulls: int
    confidence: float
    trajectories: int
    seed: int
    tried: list[float]  # every c that was tried, in this order
    searched: list[Searched]
    seconds: float
    epsilon: float = 0.0  # in standard deviations of gaussian rewards, as a share of the range of bounded ones

    @property
    def c(self) -> float:
        """The constant c of the threshold log(c (1 + log t) / delta)."""
        rule = threshold_of(self.threshold)
        assert isinstance(rule, Calibrated)
        assert rule.c is not None
        return rule.c

    def to_dict(self) -> dict[str, Any]:
        """The certificate as a dictionary that JSON can hold."""
        return asdict(self)

    def save(self, path: str | Path) -> None:
        """Write the certificate to a JSON file; `Certificate.load(path)` reads it."""
        write_whole(path, (json.dumps(self.to_dict(), indent=1, allow_nan=False) + "\n").encode())

    @classmethod
    def load(cls, path: str | Path) -> Certificate:
        """Read the certificate in a file that `save` wrote."""
        certified_in(path)  # refuses what is no certificate
        try:
            fields = json.loads(Path(path).read_text(encoding="utf-8"))
            return cls(**fields | {"searched": [Searched(**each) for each in fields["searched"]]})
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise InvalidInput(f"{path} is not a certificate written by cabai calibrate.") from error

    def _shown(self) -> tuple[list[list[str]], list[str]]:
        header = ["instance searched", "trajectories", "errors", "rate", "at most"]
        rows = [
            [each.what, str(each.trajectories), str(each.errors), f"{each.rate:.4f}", f"{each.upper_limit:.4f}"]
            for each in self.searched
        ]
        unit = {"gaussian": " standard deviations", "bounded": " of the range"}.get(self.family, "")
        worse = f"an arm that is worse than the best by more than {self.epsilon:g}{unit} is returned"
        times = [t for t in (100, 1000, 10_000) if t <= self.max_pulls] or [self.max_pulls]
        ours = [f"{math.log(self.c * (1 + math.log(t)) / self.delta):.1f}" for t in times]
        papers = [f"{math.log(2 * len(self.costs) * t / self.delta):.1f}" for t in times]
        return [header, *rows], [
            f"asks for {', '.join(ours)} nats after {', '.join(map(str, times))} pulls, and threshold paper for "
            + ", ".join(papers),
            f"certified by simulation, not proven: with {100 * self.confidence:g} % confidence, on each of these "
            f"{len(self.searched)} instances",
            f"{worse if self.epsilon else 'the best arm is lost'} within {self.max_pulls} pulls with probability at "
            f"most {self.delta:g}",
        ]

    def __repr__(self) -> str:
        rows, below = self._shown()
        return "\n".join([self.threshold, table(rows), *below])

    def _repr_html_(self) -> str:
        rows, below = self._shown()
        bars = ["at most, of delta", *(min(each.upper_limit / self.delta, 1.0) for each in self.searched)]
        return views.table(rows, above=[self.threshold], below=below, bars=bars)
