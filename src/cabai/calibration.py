"""Find by simulation how little evidence is enough: the smallest c for which Z > log(c (1 + log t)/delta) keeps delta.

A proven threshold guards against every policy, every instance and every number of pulls at once, and at practical delta
that is most of the bill. Here the rule is tuned to one policy, family, number of arms, delta and horizon, on the
hardest instances that can be thought of, as adaptive clinical trials are designed.

How c is chosen, so that looking at data many times does not spoil the confidence:

1. A pilot, on random numbers of its own, guesses c and tells hard instances from easy ones. Then it looks for harder
   ones among pairs of arms of like cost and among random instances, and adds the worst.
2. Constants are tried in falling order, from above the pilot's guess: c_1 > c_2 > ... Each is certified if on *every*
   instance the errors are so few that, were the true rate above delta, so few would be seen with probability at most
   alpha (an exact binomial test). The first that is not certified ends the search; the last that was is the answer.

The answer is wrong with probability at most alpha, without a correction for the number of constants or of instances.
Let c_k be the first constant tried at which some instance errs too often. A wrong answer needs c_k to be certified,
hence that instance to pass at c_k: one event, of probability at most alpha. If already c_1 is not certified, the search
starts again higher, on new random numbers and with half the alpha; the alphas add up to 1 - confidence.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from cabai.checks import InvalidInput, numbers, probability, whole
from cabai.families import Family, family_of
from cabai.files import write_whole
from cabai.instance import Instance, check_costs
from cabai.kernels.divergence import variance_at
from cabai.policies import CO, POLICIES, Policy, policy_of
from cabai.policies.co import stop as co_stop
from cabai.simulation import simulate
from cabai.tables import table
from cabai.thresholds import Calibrated, Stylized, threshold_of

STEP = 1.07  # between constants tried: a fifteenth of a nat
ATTEMPTS = 6
# Means to search at, the hardest first; gaussian and exponential look the same from any mean.
LEVELS = {
    "gaussian": [0.0],
    "bernoulli": [0.5, 0.05, 0.95],
    "bounded": [0.5, 0.05, 0.95],
    "poisson": [20.0, 0.3],
    "exponential": [1.0],
}
TIE = 1e-9  # standard deviations between arms that are nearly equal
NEAR, FAR = 0.3, 6.0  # standard deviations by which arms that are not close rivals may be worse than the best
RANDOM = 24  # instances drawn at random
ADDED = 3  # of the instances that were looked for: how many are searched with the rest

Told = Callable[[str], None]


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
    """What `calibrate` found: a threshold, and what is known about it, and how surely.

    With probability `confidence`, the search has given a threshold for which this is true: on each instance in
    `searched`, the policy drops the best arm or returns another one within `max_pulls` pulls with probability at most
    delta. It says nothing of other instances, nor of later pulls.
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

    @property
    def c(self) -> float:
        rule = threshold_of(self.threshold)
        assert isinstance(rule, Calibrated)
        assert rule.c is not None
        return rule.c

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def save(self, path: str | Path) -> None:
        """Write the certificate to a JSON file, whole or not at all."""
        write_whole(path, (json.dumps(self.to_dict(), indent=1, allow_nan=False) + "\n").encode())

    @classmethod
    def load(cls, path: str | Path) -> Certificate:
        """The certificate in a file that `save` has written."""
        try:
            fields = json.loads(Path(path).read_text(encoding="utf-8"))
            certificate = cls(**fields | {"searched": [Searched(**each) for each in fields["searched"]]})
        except OSError as error:
            raise InvalidInput(f"cannot read {path}: {error.strerror or error}.") from error
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise InvalidInput(f"{path} is not a certificate written by cabai calibrate.") from error
        if not isinstance(threshold_of(certificate.threshold), Calibrated):
            raise InvalidInput(f"{path} is not a certificate: its threshold is {certificate.threshold}.")
        return certificate

    def __repr__(self) -> str:
        header = ["instance searched", "trajectories", "errors", "rate", "at most"]
        rows = [
            [each.what, str(each.trajectories), str(each.errors), f"{each.rate:.4f}", f"{each.upper_limit:.4f}"]
            for each in self.searched
        ]
        times = [t for t in (100, 1000, 10_000) if t <= self.max_pulls] or [self.max_pulls]
        ours = [f"{math.log(self.c * (1 + math.log(t)) / self.delta):.1f}" for t in times]
        papers = [f"{math.log(2 * len(self.costs) * t / self.delta):.1f}" for t in times]
        return "\n".join(
            [
                self.threshold,
                table([header, *rows]),
                f"asks for {', '.join(ours)} nats after {', '.join(map(str, times))} pulls, and paper for "
                + ", ".join(papers),
                f"certified by simulation, not proven: with {100 * self.confidence:g} % confidence, on each of these "
                f"{len(self.searched)} instances",
                f"the best arm is lost within {self.max_pulls} pulls with probability at most {self.delta:g}",
            ]
        )


def calibrate(
    family: str | Family,
    costs: Sequence[float],
    policy: str | Policy = "top-two",
    *,
    delta: float = 0.05,
    max_pulls: int = 10_000,
    trajectories: int = 4000,
    confidence: float = 0.99,
    cost_model: str = "fixed",
    seed: int = 0,
    workers: int | None = None,
    told: Told | None = None,
) -> Certificate:
    """Find the least evidence with which a policy keeps delta on the hardest instances of a family, by simulation.

    `costs` are the arms' mean costs, as far as you know them; their number is the number of arms. `max_pulls` is how
    long a run may last: errors are counted up to there, and a trajectory that has not ended by then is none. More
    `trajectories` find a smaller c, at the same confidence. `told` is called with a line on what is being done.

    The instances searched have the best arm nearly tied with one, some or all others, or ahead of all by a gap that
    the run can just see, with the best arm the dearest or the cheapest, and mean rewards in the middle of the family
    and near its edge. To these come the worst of many more, found with fewer trajectories: two tied arms of like cost,
    and random instances, which depend on the seed. `bounded` is searched with rewards of 0 and 1, which vary most.

    >>> certificate = calibrate("gaussian", [1, 1], "racing", delta=0.1, max_pulls=100, trajectories=1000)
    >>> certificate.threshold
    'calibrated(c=..., policy=racing, family=gaussian, arms=2, delta=0.1, max_pulls=100)'
    >>> all(each.upper_limit <= 0.1 for each in certificate.searched)
    True
    >>> instance = Instance("gaussian", [0.5, 0], [1, 1])
    >>> runs = simulate(instance, "racing", threshold=certificate.threshold, delta=0.1, max_pulls=100)
    >>> runs.summary().standing
    'certified by simulation, up to 100 pulls'
    """
    started = time.perf_counter()
    kind, chosen, prices = family_of(family), policy_of(policy), numbers(costs, "costs")
    chance, sure = probability(delta), probability(confidence, "confidence")
    if len(prices) < 2:
        raise InvalidInput(f"costs must name at least 2 arms, got {len(prices)}.")
    check_costs(prices)
    if chance >= 0.5:
        raise InvalidInput(f"delta must be below 0.5 here, got {delta!r}.")
    whole(max_pulls, "max_pulls", 2 * len(prices))
    least = math.ceil(math.log(2**ATTEMPTS / (1 - sure)) / -math.log1p(-chance))
    if whole(trajectories, "trajectories", 1) < 2 * least:
        raise InvalidInput(
            f"delta {chance:g} with {100 * sure:g} % confidence needs at least {2 * least} trajectories, "
            f"got {trajectories}."
        )
    whole(seed, "seed", 0)
    search = Search(
        hard_instances(kind, prices.tolist(), chance, max_pulls, cost_model), chosen, chance, max_pulls, workers,
        told or (lambda text: None),
    )  # fmt: skip
    aside = seed_of(seed, 0)  # what is chosen by these random numbers is certified on others
    guess, _, _ = pilot(search, trajectories // 4, least, 1 - sure, aside)
    others = replace(search, instances=more_instances(kind, prices.tolist(), cost_model, aside))
    worst = hardest(others, max(guess / 2, 1.01 * chance), max(trajectories // 16, least), aside)
    search = replace(search, instances=search.instances + [others.instances[j] for j in worst])
    guess, order, sizes = pilot(search, trajectories, least, 1 - sure, aside, guess)
    search = replace(search, instances=[search.instances[j] for j in order])
    tried: list[float] = []
    for attempt in range(ATTEMPTS):
        alpha = (1 - sure) / 2 ** (attempt + 1)
        found = descend(search, guess, sizes, alpha, seed_of(seed, attempt + 1), tried)
        if found is not None:
            c, errors = found
            break
        guess *= 1.25
    else:
        raise InvalidInput(f"no constant up to c = {guess:.3g} could be certified; give more trajectories.")
    threshold = Calibrated(c, str(chosen), kind.name, len(prices), chance, max_pulls)
    searched = [
        Searched(
            each.what, each.instance.means.tolist(), each.instance.costs.tolist(), size, wrong,
            upper_limit(wrong, size, alpha),
        )
        for each, size, wrong in zip(search.instances, sizes, errors, strict=True)
    ]  # fmt: skip
    return Certificate(
        str(threshold), str(chosen), kind.name, prices.tolist(), cost_model, chance, max_pulls, sure, trajectories,
        seed, tried, searched, time.perf_counter() - started,
    )  # fmt: skip


@dataclass(frozen=True)
class Hard:
    """An instance to search, whose last arm is the best, in words."""

    what: str
    instance: Instance


def hard_instances(family: Family, costs: list[float], delta: float, max_pulls: int, cost_model: str) -> list[Hard]:
    """The instances on which errors are most likely, the best arm last."""
    K, ordered = len(costs), sorted(costs)
    drawn = "bernoulli" if family.name == "bounded" else family
    # which arm is the best, and the others in the order in which they are its close rivals
    places = {"dearest": (ordered[-1], ordered[:-1]), "cheapest": (ordered[0], ordered[:0:-1])}
    if ordered[0] == ordered[-1]:
        places = {"any": places["dearest"]}
    counts = sorted({K - 1, K // 2, 1} if K >= 6 else {K - 1, 1}, reverse=True)
    found = []

    def add(what: str, best: float, near: float, far: float, price: float, others: list[float], close: int) -> None:
        means = [far] * (K - 1 - close) + [near] * close + [best]
        paid = [*others[close:], *others[:close], price]
        found.append(Hard(what, Instance(drawn, means, paid, cost_model=cost_model)))

    for level in LEVELS[family.name]:
        name = family.name
        spread = math.sqrt(variance_at(family.code, family.variance, level, 1 - level))
        far = below(family, level, FAR)
        at = "" if len(LEVELS[name]) == 1 else f", mean {level:g}"
        for place, (price, others) in places.items():
            where = "" if place == "any" else f", best {place}"
            for close in counts:
                rest = "all arms tied" if close == K - 1 else f"{close + 1} tied, others far below"
                add(rest + where + at, level, level - TIE * spread, far, price, others, close)
        if level == LEVELS[name][0]:
            where, (price, others) = "" if "any" in places else ", best dearest", next(iter(places.values()))
            gaps = [spread * math.sqrt(8 * K * math.log(1 / delta) / (share * max_pulls)) for share in (0.1, 0.01)]
            least = -math.inf if name == "gaussian" else level / 4
            # what a tenth, and a hundredth, of the longest run can just see
            for near in sorted({max(level - gap, least) for gap in gaps}, reverse=True):
                ahead = f"best ahead by {(level - near) / spread:.2g} sd"
                add(ahead + where + at, level, near, far, price, others, K - 1)
    return found


def below(family: Family, level: float, distance: float) -> float:
    """A mean that is some standard deviations below a level, or about so where the family has an edge there."""
    spread = math.sqrt(variance_at(family.code, family.variance, level, 1 - level))
    return level - distance * spread if family.name == "gaussian" else level * math.exp(-distance * spread / level)


def more_instances(family: Family, costs: list[float], cost_model: str, seed: int) -> list[Hard]:
    """Instances among which to look for hard ones, the best arm last: the best arm tied with the one whose cost is
    next to its own, for the dearest, a middling and the cheapest arm, the others at several distances below; and random
    ones. None has all arms tied, as `hard_instances` has them; so there is none for two arms."""
    K, ordered = len(costs), sorted(costs)
    if K == 2:
        return []
    drawn = "bernoulli" if family.name == "bounded" else family
    found: list[Hard] = []

    def add(what: str, level: float, best: int, close: list[int], gaps: dict[int, float]) -> None:
        order = [*gaps, *close, best]
        means = [
            *(below(family, level, gap) for gap in gaps.values()),
            *[below(family, level, TIE)] * len(close),
            level,
        ]
        found.append(Hard(what, Instance(drawn, means, [ordered[a] for a in order], cost_model=cost_model)))

    distances = {"close": [1.0], "spread": [1.0, 2.2, 4.0], "far": [FAR]}
    for best, rival in {K - 1: K - 2, K // 2: K // 2 - 1, 0: 1}.items():
        rest = [a for a in range(K) if a not in (best, rival)]
        for how, steps in distances.items():
            gaps = {a: steps[i % len(steps)] for i, a in enumerate(rest)}
            what = f"2 tied, of costs {ordered[best]:.2g} (best) and {ordered[rival]:.2g}, others {how} below"
            add(what, LEVELS[family.name][0], best, [rival], gaps)
    random = np.random.default_rng(seed)
    for number in range(RANDOM):
        level = LEVELS[family.name][int(random.integers(len(LEVELS[family.name])))]
        best, *others = random.permutation(K).tolist()
        close = min(int(random.geometric(0.5)), K - 2)  # one rival as often as more
        exponents = random.random(K - 1 - close) if number % 3 else [random.random()] * (K - 1 - close)
        gaps = {a: NEAR * (FAR / NEAR) ** x for a, x in zip(others[close:], exponents, strict=True)}
        what = f"random {number + 1}: {close + 1} tied, best costs {ordered[best]:.2g}"
        add(what, level, best, others[:close], gaps)
    return found


def hardest(search: Search, c: float, size: int, seed: int) -> list[int]:
    """The ADDED instances with the most errors: all are tried with few trajectories, then the worst with more."""
    tried = list(range(len(search.instances)))
    for keep, more in ((2 * ADDED, 1), (ADDED, 4)):
        errors = {j: search.errors(j, [c], more * size, seed)[0] for j in tried}
        tried = sorted(errors, key=lambda j: -errors[j])[:keep]
    return tried


def best_is_lost(arms, run, rules):  # type: ignore[no-untyped-def]
    """The stopping rule of co and racing, and over as soon as the best arm, the last, has been dropped."""
    return co_stop(arms, run, rules) or arms[len(arms) - 1].in_play == 0


def watched(policy: Policy) -> Policy:
    """The same policy; one that eliminates ends, wrongly, when it drops the last arm, whatever it does afterwards."""
    if not isinstance(policy, CO):
        return policy
    own: Any = type(type(policy).__name__, (type(policy),), {"stop": staticmethod(best_is_lost)})
    return own()  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Search:
    """Counts errors: on which instances, of which policy, at which delta and up to how many pulls."""

    instances: list[Hard]
    policy: Policy
    delta: float
    max_pulls: int
    workers: int | None
    told: Told

    @property
    def at_once(self) -> int:
        """How many constants one trajectory can answer for: several if c does not change what is pulled."""
        return 1 if self.policy.depends_on_delta or self.policy.name not in POLICIES.names else 8

    def errors(self, which: int, constants: list[float], trajectories: int, seed: int) -> list[int]:
        """Wrong trajectories on an instance, for each of some constants: log(c (1 + log t)/delta) is `stylized` at
        delta/c."""
        each = self.instances[which]
        self.told(f"c = {constants[0]:.3g}: {each.what}, {trajectories} trajectories")
        runs = simulate(
            each.instance, watched(self.policy), threshold=Stylized(), delta=[self.delta / c for c in constants],
            trajectories=trajectories, max_pulls=self.max_pulls, seed=seed, workers=self.workers,
        )  # fmt: skip
        return [int(run.wrong.sum()) for run in runs]


def pilot(
    search: Search, trajectories: int, least: int, alpha: float, seed: int, c: float = 1.0
) -> tuple[float, list[int], list[int]]:
    """A c at which the hardest instance would just be certified; the instances, hardest first; and how many
    trajectories to spend on each: all on those that may decide, a quarter on the others.

    Errors fall roughly as a power of c: from the c given, steps of the secant method on the logarithms of both, on the
    three worst instances.
    """
    size, aim = max(trajectories // 4, least), most_errors(trajectories, search.delta, alpha / 2) / trajectories
    rates = dict.fromkeys(range(len(search.instances)), 1.0)
    order: list[int] = []
    sizes: list[int] = []
    power, last = 1.0, (0.0, 0.0)
    for step in range(6):
        for j in rates:
            rates[j] = (search.errors(j, [c], size, seed)[0] + 0.5) / (size + 1)
        worst = max(rates.values())
        if step == 0:
            order = sorted(rates, key=lambda j: -rates[j])
            sizes = [trajectories if rates[j] > 0.4 * worst else size for j in order]
            rates = {j: rates[j] for j in order[:3]}
        elif math.log(c) != last[0]:
            power = min(max((last[1] - math.log(worst)) / (math.log(c) - last[0]), 0.3), 3.0)
        last = math.log(c), math.log(worst)
        factor = min(max((worst / aim) ** (1 / power), 1 / 8), 8.0)
        c = max(c * factor, 1.01 * search.delta)
        if abs(math.log(factor)) < 0.15:
            break
    return c, order, sizes


def descend(
    search: Search, guess: float, sizes: list[int], alpha: float, seed: int, tried: list[float]
) -> tuple[float, list[int]] | None:
    """The last constant certified on the way down from above the guess, and the errors seen there; None if none was."""
    allowed = [most_errors(size, search.delta, alpha) for size in sizes]
    start, found, count = guess * STEP, None, 0
    while True:
        below = (float(f"{start / STEP ** (count + i):.3g}") for i in range(search.at_once))
        constants = [c for c in below if c > search.delta]  # at delta itself, no evidence would be asked for
        seen: list[list[int]] = []
        certified = len(constants)
        for j in range(len(sizes)) if certified else ():
            seen.append(search.errors(j, constants[:certified], sizes[j], seed))
            passes = [errors <= allowed[j] for errors in seen[-1]]
            certified = passes.index(False) if False in passes else certified
            if not certified:
                break
        tried += constants[: certified + 1]
        if certified:
            found = constants[certified - 1], [errors[certified - 1] for errors in seen]
        if certified < search.at_once:
            return found
        count += search.at_once


def seed_of(seed: int, part: int) -> int:
    """Random numbers of its own for each part of the search, and none that `simulate` draws for a small seed."""
    return int(np.random.SeedSequence((seed, part)).generate_state(1, np.uint64)[0])


def log_cdf(most: int, n: int, p: float) -> float:
    """The log of the probability of at most `most` successes in n trials of probability p."""
    i = np.arange(1, most + 1)
    steps = np.log((n - i + 1) / i) + math.log(p) - math.log1p(-p)
    log_pmf = n * math.log1p(-p) + np.concatenate([[0.0], np.cumsum(steps)])
    return float(np.logaddexp.reduce(log_pmf))


def most_errors(n: int, delta: float, alpha: float) -> int:
    """The most errors in n trajectories that certify a rate of at most delta; -1 if not even none does.

    >>> most_errors(4000, 0.05, 0.005)
    164
    """
    low, high = -1, n
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if log_cdf(middle, n, delta) <= math.log(alpha) else (low, middle)
    return low


def upper_limit(errors: int, n: int, alpha: float) -> float:
    """The largest rate at which so few errors have probability alpha (Clopper and Pearson 1934)."""
    if errors == n:
        return 1.0
    low, high = errors / n, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if log_cdf(errors, n, middle) <= math.log(alpha) else (middle, high)
    return high
