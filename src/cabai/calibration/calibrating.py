"""Find by simulation how little evidence is enough: the smallest c for which Z > log(c (1 + log t)/delta) keeps delta.

A proven threshold guards against every policy, every instance and every number of pulls at once, and at practical delta
that is most of the bill. Here the rule is tuned to one policy, family, number of arms, delta and horizon, on the
hardest instances that can be thought of, as adaptive clinical trials are designed.

How c is chosen, so that looking at data many times does not spoil the confidence:

1. A pilot, on its own random numbers, guesses c and tells hard instances from easy ones. Then it looks for harder ones
   among pairs of arms of similar cost and among random instances, and adds the worst.
2. Constants are tried in falling order, from above the pilot's guess: c_1 > c_2 > ... Each is certified if on *every*
   instance the errors are so few that, were the true rate above delta, so few would be seen with probability at most
   alpha (an exact binomial test). The first that is not certified ends the search; the last that was is the answer.

The answer is wrong with probability at most alpha, without a correction for the number of constants or of instances.
Let c_k be the first constant tried at which some instance errs too often. A wrong answer needs c_k to be certified,
hence that instance to pass at c_k: one event, of probability at most alpha. If already c_1 is not certified, the search
starts again higher, on new random numbers and with half the alpha; the alphas add up to 1 - confidence.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace

from cabai import policies
from cabai.calibration.binomial import upper_limit
from cabai.calibration.certificate import Certificate, Searched
from cabai.calibration.instances import SCALES, hard_instances, more_instances, set_apart, some_within
from cabai.calibration.search import Progress, Search, descend, hardest, pilot, seed_of
from cabai.families import Family, family_of
from cabai.instance import check_costs
from cabai.policies import Policy, policy_of
from cabai.simulation.engines import EngineLike, opened
from cabai.support.validation import InvalidInput, numbers, probability, whole
from cabai.thresholds import Calibrated
from cabai.thresholds.calibrated import written

ATTEMPTS = 6


def calibrate(
    family: str | Family,
    costs: Sequence[float],
    policy: str | Policy = policies.DEFAULT,
    *,
    delta: float = 0.05,
    epsilon: float = 0.0,
    max_pulls: int = 10_000,
    trajectories: int = 4000,
    confidence: float = 0.99,
    cost_model: str = "fixed",
    seed: int = 0,
    workers: int | None = None,
    engine: EngineLike = None,
    address: str | None = None,
    progress: Progress | None = None,
) -> Certificate:
    """Find, by simulation, the least evidence with which a policy keeps delta on the hardest instances of a family.

    `costs` are the arms' mean costs, as far as you know them; their number is the number of arms. `max_pulls` is how
    long a run may last: errors are counted up to there, and a trajectory that has not ended by then is not an error.
    More `trajectories` find a smaller c, at the same confidence. `workers`, `engine` and `address` are those of
    `simulate`: where the trajectories run. `progress` is called with a line about what is being done.

    The instances searched have the best arm nearly tied with one, some or all others, or ahead of all by a gap that the
    run can just see, with the best arm the most expensive or the cheapest, or a middling one tied with the next more
    expensive, and mean rewards in the middle of the family and near its edge. The worst of many more are added, found
    with fewer trajectories: two tied arms of similar cost, and random instances, which depend on the seed. `bounded` is
    searched with rewards of 0 and 1, which vary most. With `epsilon`, an arm within epsilon of the best is a right
    answer; rivals that were tied are then a little more than epsilon worse. The threshold is for that epsilon alone: of
    gaussian rewards in units of their standard deviation, of bounded ones as a share of their range.

    >>> certificate = calibrate("gaussian", [1, 1], "racing", delta=0.1, max_pulls=100, trajectories=1000)
    >>> certificate.threshold
    'calibrated(c=..., policy=racing, family=gaussian, arms=2, delta=0.1, max_pulls=100)'
    >>> all(each.upper_limit <= 0.1 for each in certificate.searched)
    True
    >>> import cabai
    >>> instance = cabai.Instance("gaussian", [0.5, 0], [1, 1])
    >>> runs = cabai.simulate(instance, "racing", threshold=certificate.threshold, delta=0.1, max_pulls=100)
    >>> runs.summary().standing
    'certified by simulation, up to 100 pulls'
    """
    started = time.perf_counter()
    kind, chosen, prices = family_of(family), policy_of(policy), numbers(costs, "costs")
    if kind.key == "symmetric":
        raise InvalidInput(f"calibrate needs the variance of the rewards, as in gaussian(variance=1), got {kind}.")
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
    slack = kind.check_epsilon(epsilon)
    seen = slack / kind.unit if kind.name == "bounded" else slack  # by the instances, whose rewards are 0 and 1 then
    hard = hard_instances(kind, prices.tolist(), chance, max_pulls, cost_model)
    if slack:
        hard = set_apart(hard, seen)
        hard += some_within(hard[:1], seen)
    if not hard:
        raise InvalidInput(f"epsilon {slack:g} makes every arm good enough: there is nothing to search.")
    with opened(engine, workers=workers, address=address) as place:
        search = Search(hard, chosen, chance, max_pulls, place, progress or (lambda text: None), seen)
        spare = seed_of(seed, 0)  # what is chosen by these random numbers is certified on others
        guess, _, _ = pilot(search, trajectories // 4, least, 1 - sure, spare)
        more = more_instances(kind, prices.tolist(), cost_model, spare)
        others = replace(search, instances=set_apart(more, seen, SCALES[:1]) if slack else more)
        worst = hardest(others, max(guess / 2, 1.01 * chance), max(trajectories // 16, least), spare)
        search = replace(search, instances=search.instances + [others.instances[j] for j in worst])
        guess, order, sizes = pilot(search, trajectories, least, 1 - sure, spare, guess)
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
    threshold = Calibrated(c, written(chosen), kind.key, len(prices), chance, max_pulls, slack / kind.scale)
    searched = [
        Searched(
            each.what, each.instance.means.tolist(), each.instance.costs.tolist(), size, wrong,
            upper_limit(wrong, size, alpha),
        )
        for each, size, wrong in zip(search.instances, sizes, errors, strict=True)
    ]  # fmt: skip
    return Certificate(
        str(threshold), str(chosen), kind.key, prices.tolist(), cost_model, chance, max_pulls, sure, trajectories,
        seed, tried, searched, time.perf_counter() - started, slack / kind.scale,
    )  # fmt: skip
