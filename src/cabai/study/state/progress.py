"""How far a study has come, and what is still to pay: in closed form, from what its tests have counted so far.

For each claim that is still to be shown, "b is better than a (up to epsilon)", the data have the information
i = 1/(V_b/n_b + V_a/n_a) about the difference g of the means. Evidence grows as the square of a sum S = i (g + epsilon)
over 2i. Each unit of information to come adds theta to S on average: theta^2 is the mean square of the difference (plus
epsilon), if differences are normal with a typical variance before anything is seen. So the information m that is still
needed solves

    (S + m theta)^2 = 2 (i + m) (Z + what is missing),        Z = S^2/(2i).

Then the pulls that reach this information at the least cost follow, and their price. That is a guess, often off by a
factor of two or three. Without it, as much is still to come as was spent, since a study may be looked at anywhere
between its start and its end. Both are combined:

    left = spent^(1 - TRUSTED) price^TRUSTED,        progress = spent/(spent + left).

If much is known and yet much is still to come, arms must be closer than most are. So the price is multiplied by
((1 - w)/UNSEEN)^RARE, with w the weight of the data on the closest claim; but not in a race, whose items end.

Results that wait for those of earlier pulls count here: what is known of an arm is what was told, and the evidence is
as much larger as Z is. But no less is left than what is under way.

What is still to come is less than LEAST times `left` in a tenth of the looks, if these are spread evenly over the bill,
and more than MOST times it in another tenth. With N results in all, as is expected now, both factors are raised to
N/(N + FEW): a study of few results ends more predictably, since results are whole. The low end grows with the number
of claims, since the last of them counts, and with the share of the rest of a race that is expected to be needed, since
a race ends with its last item. It shrinks with the share of the results to come that is under way: the evidence is
behind by these.

Only for display: no test depends on it. `benchmarks/bench_progress.py` measures how well it holds.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from cabai.core.state import Record
from cabai.families.slots import variance_at
from cabai.thresholds import symmetric

TYPICAL, TYPICAL_OF_ITEMS = 0.5, 0.1  # squared differences of means, in variances of a difference of two rewards
PRICE = 2.0  # nats that are needed before evidence shows at all
TRUSTED = 0.67
RARE, UNSEEN = 0.11, 0.03  # how rare close arms are; of a claim in a typical study, the share that data leave open
LEAST, MOST = 0.25, 4.5  # of what is left: its range
FEW = 12  # results
FORGETS = 20
SLOW, KNOWN = 0.2, 0.97  # if less than this share is paid, though the difference is known this well: perhaps a tie
ENDING = 0.999  # the most progress before the end
UNPAID = 0.01  # of the smallest cost of an arm: what a pull that costs nothing counts as

Pairs = Sequence[tuple[float, float] | None]  # of the leader with each arm: evidence, and what is required of it


class Claim(NamedTuple):
    """That b is better than a, or at most epsilon worse, and the evidence for it."""

    winner: int
    loser: int
    epsilon: float  # as kernels see it
    evidence: float
    required: float


class Remaining(NamedTuple):
    """What is still to come, as far as it can be told. Costs are those of a decision; no more than `rest` is paid."""

    cost: float
    results: float
    least: float  # of the cost: less with a chance of a tenth
    most: float  # more with a chance of a tenth
    spent: float
    rest: float  # of the budget
    looks_tied: bool = False  # no end is in sight

    def progress(self, before: tuple[float, float] | None = None) -> float:
        """The share of the expected bill that is paid. It moves smoothly from what was spent and the progress `before`,
        if they are known: the logarithm of the expected bill forgets as a power of what is spent."""
        bill = self.spent + min(self.cost, self.rest)
        if before is not None and 0 < before[0] <= self.spent:
            known = math.log(before[0] / before[1])
            bill = math.exp(known + (1 - (before[0] / self.spent) ** FORGETS) * (math.log(bill) - known))
        return min(self.spent / bill, ENDING) if bill > 0 else 0.0

    @property
    def low(self) -> float:
        return min(self.least, self.rest)

    @property
    def high(self) -> float:
        return min(self.most, self.rest)

    @property
    def chance(self) -> float | None:
        """That of a decision within the budget: between `least` and `most` the cost is taken to be log-normal."""
        if math.isinf(self.rest):
            return None
        if not (self.rest > 0 and 0 < self.least < self.most):
            return float(self.rest >= self.most)
        middle, width = math.log(self.least * self.most) / 2, math.log(self.most / self.least) / 2
        return NormalDist().cdf(NormalDist().inv_cdf(0.9) * (math.log(self.rest) - middle) / width)


def shown(i: float, gap: float, claim: Claim) -> float:
    """Z: about the evidence for the claim that this information shows, before its price."""
    return 0.5 * i * max(gap + claim.epsilon, 0.0) ** 2


def information(
    i: float, gap: float, claim: Claim, variance: float, typical: float, price: float = 0.0
) -> tuple[float, float]:
    """The information that the claim needs in total, and the weight of the data; no evidence counts as -`price`."""
    weight = typical * variance / (typical * variance + 1 / i)
    theta = math.sqrt(max(weight * gap + claim.epsilon, 0.0) ** 2 + weight / i)
    total = i * (gap + claim.epsilon)
    z = shown(i, gap, claim)
    missing = claim.required - claim.evidence
    if not claim.evidence > 0:
        missing += max(price - z, 0.0)
    enough = z + max(missing, 1e-9)
    q = enough - total * theta
    m = (q + math.sqrt(max(q * q - theta * theta * (total * total - 2 * enough * i), 0.0))) / (theta * theta)
    return i + max(m, 0.0), weight


def pulls_for(hub: int, need: dict[int, float], n: Any, variances: Any, costs: Any) -> dict[int, float]:
    """The pulls of each arm that reach the information `need[a]` on each pair of `hub` and a, at little cost."""
    top = max(need.values())
    load = sum(costs[a] * variances[a] * (need[a] / top) ** 2 for a in need)
    own = top * math.sqrt(variances[hub]) * (math.sqrt(costs[hub] * variances[hub]) + math.sqrt(load))
    found = {hub: max(own / math.sqrt(costs[hub]), n[hub])}
    for a in need:
        room = 1 / need[a] - variances[hub] / found[hub]  # not positive if rounding leaves nothing: then V_a is tiny
        found[a] = max(variances[a] / room, n[a]) if room > 0 else n[a]
    return found


def of_sampled(state: Any, claims: Sequence[Claim]) -> Remaining | None:
    """What is left of a study without items; None while an arm has no reward, and where its test does not say."""
    settings = state.settings
    if not claims or not state.ordered.everything_pulled or not all(math.isfinite(each.required) for each in claims):
        return None
    seen = [(view.arms["pulls"].astype(float).tolist(), view.arms["mean"].tolist()) for view in state.views]
    (n, mean), waits, paid = seen[0], len(seen) > 1, state.paid_costs()
    variances, costs = variances_of(state, *seen[-1]), prices(paid)

    def known(claim: Claim, n: Sequence[float], mean: Sequence[float]) -> tuple[float, float]:
        b, a = claim.winner, claim.loser
        return 1 / (variances[b] / n[b] + variances[a] / n[a]), mean[b] - mean[a]

    by_hub: dict[int, dict[int, float]] = defaultdict(dict)
    closest = math.inf, 1.0
    for claim in claims:
        b, a = claim.winner, claim.loser
        i, gap = known(claim, n, mean)
        if waits and claim.evidence > 0:
            waiting = shown(i, gap, claim) - shown(*known(claim, *seen[-1]), claim)
            claim = claim._replace(evidence=claim.evidence + waiting)
        need, own = information(i, gap, claim, variances[b] + variances[a], TYPICAL, PRICE)
        by_hub[b][a] = max(need, by_hub[b].get(a, 0.0))
        closest = min(closest, (claim.evidence - claim.required, own))
    more = [0.0] * len(n)
    fewest = symmetric.fewest(max(claim.required for claim in claims)) if settings.family.key == "symmetric" else 0
    for hub, needs in by_hub.items():
        for a, pulls in pulls_for(hub, needs, n, variances, costs).items():
            more[a] = max(more[a], max(pulls, fewest) - n[a])
    compared = {arm for claim in claims for arm in claim[:2]} if fewest else ()
    certain = sum(costs[a] * max(fewest - n[a], 0.0) for a in compared)
    if waits:  # until those under way are told
        more = np.maximum(more, state.live).tolist()
    price = sum(c * m for c, m in zip(costs, more, strict=True))
    spent = state.bill if max(paid) > 0 else float(state.told)
    is_slow = spent / (spent + price) < SLOW and closest[1] > KNOWN and settings.epsilon == 0
    rare = ((1 - closest[1]) / UNSEEN) ** RARE
    found = remaining(state, rare * price, rare * sum(more), spent, len(claims), certain=certain)
    return found._replace(looks_tied=is_slow)


def remaining(
    state: Any, price: float, results: float, spent: float, claims: int, everything: float = math.inf,
    certain: float = 0.0,
) -> Remaining:  # fmt: skip
    """What is left: the price, as far as it can be trusted, of results to come, from `certain` to `everything`."""
    left = min(max(spent ** (1 - TRUSTED) * price**TRUSTED if spent > 0 else price, certain), everything)
    results *= left / price if price > 0 else 0.0
    in_all = state.told + state.in_sums + results
    width, share = in_all / (in_all + FEW), left / everything if left > 0 else 0.0
    most = min(MOST**width * left, everything)
    under_way = int(state.live.sum())
    known = results / (results + under_way) if under_way else 1.0
    least = min(max(LEAST**width * claims**0.25 * (1 + share) * known * left, certain), most)
    limits, settings = [math.inf if state.rest_of_budget is None else state.rest_of_budget], state.settings
    for limit in (settings.max_pulls, settings.certified_pulls):
        if limit is not None and results > 0:
            limits.append(max(limit - state.told - state.in_sums, 0) * left / results)
    return Remaining(left, results, least, most, spent, min(limits))


def prices(paid: Any) -> list[float]:
    """What pulls cost, for sharing them out: never nothing."""
    costs = [cost if 0 < cost < math.inf else None for cost in paid.tolist()]
    least = UNPAID * min((cost for cost in costs if cost is not None), default=1 / UNPAID)
    return [least if cost is None else cost for cost in costs]


def variances_of(state: Any, n: list[float], mean: list[float]) -> list[float]:
    """The variance of each arm's rewards, as kernels see them: of rewards in [0, 1] with half a reward added."""
    key = state.settings.family.key
    if key == "symmetric":  # as estimated, for policies too
        return [max(float(own), 1e-12) for own in state.ordered.arms["own_variance"]]
    of_family, rules = state.setup.bound(variance_at), Record(state.rules)
    is_share = key in ("bernoulli", "bounded")
    with np.errstate(all="ignore"):
        around = [(k * x + 0.5) / (k + 1) if is_share else x for k, x in zip(n, mean, strict=True)]
        found = [float(of_family(rules, x, 1.0 - x)) for x in around]
    if key == "bounded":
        found = (np.array(found) * variance_part(state, np.array(n), np.array(mean))).tolist()
    least = [0.5 / k if key == "poisson" else 1e-12 for k in n]
    return [max(own, floor) for own, floor in zip(found, least, strict=True)]


def variance_part(state: Any, n: Any, mean: Any) -> Any:
    """The variance of each arm's rewards, as a share of what rewards of 0 and 1 with its mean would have."""
    most = np.maximum(mean * (1 - mean), 1e-12)
    found = [state.variance(a) for a in range(len(n))]
    if any(each is None for each, pulls in zip(found, n, strict=True) if pulls > 1):
        return np.ones(len(n))  # not known
    own = np.array([0.0 if each is None else each for each in found])
    known = n * (n > 1)
    common = ((known * own).sum() + most.mean()) / ((known * most).sum() + most.mean())
    return ((known * own + 4 * common * most) / ((known + 4) * most)).clip(1e-6, 1.0)


def of_race(state: Any, claims: Sequence[Claim]) -> Remaining | None:
    """What is left of a race: up to the item at which each claim is expected to be shown, never beyond the last."""
    board, items = state.race.board, state.race.items
    if not claims or not (board.prefix > 0).all():
        return None
    end = dict.fromkeys((arm for claim in claims for arm in claim[:2]), 0.0)
    for claim in claims:
        b, a = claim.winner, claim.loser
        j = int(min(board.prefix[b], board.prefix[a]))
        last = float(items)
        if j < items:
            d = board.shares[b, :j] - board.shares[a, :j]
            gap = float(d.sum()) / j
            variance = (float(d @ d) + 0.25) / j - gap * gap
            i = j / (1 - j / items) / variance  # sampling without replacement
            need, _ = information(i, gap, claim, variance, TYPICAL_OF_ITEMS)
            last = need * variance * items / (items + need * variance)
        for arm in (b, a):
            end[arm] = max(end[arm], last)
    told, costs = np.count_nonzero(~np.isnan(state.race.scores), axis=1).tolist(), prices(state.paid_costs())
    more = {arm: max(last - told[arm], 0.0) for arm, last in end.items()}
    price, results = sum(costs[arm] * each for arm, each in more.items()), sum(more.values())
    spent = state.bill if state.bill > 0 else float(state.told)
    everything = sum(costs[arm] * (items - told[arm]) for arm in end)
    return remaining(state, price, results, spent, len(claims), everything)
