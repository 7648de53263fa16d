"""The lower bound: its accuracy against an independent reference, its closed forms, and the solver's warm starts."""

import itertools
import math
import random
import re
from decimal import Decimal
from functools import cache, partial

import numpy as np
import pytest
from mpmath import mp, mpf

import cabai
from cabai import Instance, InvalidInput, bound
from cabai.core.compiling import compiled
from cabai.core.setup import TOLERANCE, Setup
from cabai.core.shares import allocate
from cabai.families import family_of
from cabai.policies import policy_of
from cabai.thresholds import threshold_of
from combinations import covering
from conftest import variance_of
from reference_bound import reference

GAUSSIANS = ["gaussian", "gaussian(variance=0.01)", "gaussian(variance=30)"]
FAMILIES = [*GAUSSIANS, "bernoulli", "poisson", "exponential"]
ACCURACY = 1e-9


near = partial(pytest.approx, abs=0)


def off(found, exact):
    """The largest relative error of some numbers, taken in high precision."""
    with mp.workdps(40):
        return max(float(abs(mpf(float(x)) / y - 1)) for x, y in zip(found, exact, strict=True))


def assert_accurate(instance):
    solved = bound(instance)
    family, variance = instance.family.name, variance_of(instance.family)
    hardness, cost_shares, pull_shares = reference(family, instance.means, instance.costs, variance)
    assert off([solved.hardness], [hardness]) <= ACCURACY
    assert off(solved.cost_shares, cost_shares) <= ACCURACY
    assert off(solved.pull_shares, pull_shares) <= ACCURACY


# The means of each family that are easy, on its boundary, just off it, nearly tied, and far apart.
MEANS = {
    "gaussian": [
        [1.5, 1.0, 0.5], [1e-9, 0.0, -1.0], [0.0, -1e-9, -2e-9, -1e3],
        [1e6, 1e6 - 1e-3, 0.0], [3.0, 3.0 - 1e-9, 3.0 - 1.1e-9, 2.9, -1e6],
    ],
    "bernoulli": [
        [0.9, 0.6, 0.3], [1.0, 0.0], [1.0, 0.5, 0.0], [1.0, 1 - 1e-6, 1e-6, 0.0], [1e-6, 0.0],
        [1e-6, 1e-6 - 1e-9, 0.0], [1.0, 1 - 1e-9, 0.5], [1 - 1e-6, 1 - 2e-6, 0.0, 1e-6],
        [0.5, 0.5 - 1e-9, 0.5 - 1e-8, 0.0], [0.1, 1e-6, 1e-9, 0.0], [1.0, 1 - 1e-9, 1 - 2e-9, 1e-6],
    ],
    "poisson": [
        [1.5, 1.0, 0.5], [1.0, 0.0], [1e-6, 0.0], [1e-6, 1e-6 - 1e-9, 1e-9, 0.0],
        [1000.0, 1000.0 - 1e-9, 1e-6, 0.0], [2.0, 2.0 - 1e-9, 2.0 - 2e-9, 1.0], [1e4, 1.0, 0.0],
    ],
    "exponential": [
        [1.5, 1.0, 0.5], [1.0, 1e-6], [1.0, 1 - 1e-9, 1e-6], [1e-6, 1e-6 - 1e-15, 1e-7], [2e-6, 1e-6],
        [1e3, 1.0, 1e-3], [3.0, 3.0 - 1e-9, 3.0 - 2e-9, 2.0],
        [1e4, 1.0, 1e-6], [1e6, 1e6 - 1e-3, 1e-6],  # rivals whose mean is a tiny part of the pooled one
    ],
}  # fmt: skip
MEANS["gaussian(variance=0.01)"] = MEANS["gaussian(variance=30)"] = MEANS["gaussian"][:3]


def costs_by_place(arms):
    """Costs for arms ordered from best to worst."""
    return {
        "equal": [1.0] * arms,
        "best-dearest": [1.0] + [1e-6] * (arms - 1),
        "best-cheapest": [1e-6] + [1.0] * (arms - 1),
        "falling": [10.0 ** (-6 * a / (arms - 1)) for a in range(arms)],
        "runner-up-dear": [1e-6, 1.0] + [1e-6] * (arms - 2),
    }


@pytest.mark.parametrize("layout", costs_by_place(3))
@pytest.mark.parametrize("family", FAMILIES)
def test_hard_means_and_costs_agree_with_direct_optimisation(family, layout):
    for means in MEANS[family]:
        assert_accurate(Instance(family, means, costs_by_place(len(means))[layout]))


def random_mean(draw, family, best=None):
    """A mean below `best`, often nearly tied with it, often on the boundary or near it."""
    if family == "exponential":
        mean = draw.choice([1e-6, 10 ** draw.uniform(-6, 3)])
    elif family == "poisson":
        mean = draw.choice([0.0, 1e-6 * draw.random(), 10 ** draw.uniform(-6, 3)])
    elif family == "bernoulli":
        mean = draw.choice([0.0, 1.0, 1e-6 * draw.random(), 1 - 1e-6 * draw.random(), draw.random(), draw.random()])
    else:
        mean = draw.gauss(0, 10 ** draw.uniform(-3, 3))
    if best is None:
        return mean
    near = best - (abs(best) or 1) * 10 ** draw.uniform(-9, -1)
    return near if mean >= best or draw.random() < 0.4 else mean


@pytest.mark.parametrize("family", FAMILIES)
def test_random_hard_instances_agree_with_direct_optimisation(family):
    for seed in range(10):
        draw = random.Random(f"{family} {seed}")
        best = random_mean(draw, family) or 1e-6
        means = [best] + [random_mean(draw, family, best) for _ in range(draw.choice([1, 2, 3, 4, 9]))]
        costs = [10 ** draw.uniform(-6, 0) for _ in means]
        order = draw.sample(range(len(means)), len(means))
        assert_accurate(Instance(family, [means[a] for a in order], [costs[a] for a in order]))


BEST_OF_MANY = [(family, 2.0) for family in FAMILIES if family != "bernoulli"]
BEST_OF_MANY += [("bernoulli", best) for best in (0.9, 1 - 1e-6, 1.0)]


@pytest.mark.parametrize("arms", [30, 1000])
@pytest.mark.parametrize(("family", "best"), BEST_OF_MANY)
def test_many_arms_of_few_kinds_agree_with_direct_optimisation(family, best, arms):
    kinds = [(best - 1e-6, 1.0), (best / 2, 1e-6), (best / 3, 0.1), (1e-6, 1e-3)]
    rivals = [kinds[a % len(kinds)] for a in range(arms - 1)]
    assert_accurate(Instance(family, *zip(*rivals[:7], (best, 0.01), *rivals[7:], strict=True)))


@pytest.mark.parametrize(
    ("arms", "gap", "variance"), [(2, 1e-9, 0.01), (2, 1e4, 1), (3, 0.4, 2), (10, 0.4, 2), (1000, 0.4, 2)]
)
@pytest.mark.parametrize(("best_cost", "cost"), [(1, 1), (1, 1e-6), (1e-6, 1), (0.3, 0.7)])
def test_equal_gaussian_rivals_have_the_corrected_corollary_2(arms, gap, variance, best_cost, cost):
    means, costs = [gap] + [0] * (arms - 1), [best_cost] + [cost] * (arms - 1)
    solved = bound(Instance("gaussian", means, costs, variance=variance))
    leader, rivals = math.sqrt(best_cost), math.sqrt((arms - 1) * cost)
    assert solved.hardness == near(2 * variance * (leader + rivals) ** 2 / gap**2, rel=1e-12)
    assert solved.cost_shares[0] == near(leader / (leader + rivals), rel=1e-9)
    assert solved.cost_shares[1:] == near(np.full(arms - 1, rivals / (leader + rivals) / (arms - 1)), rel=1e-9)


@pytest.mark.parametrize(
    ("means", "weights"),
    [
        ([0.5, 0.45, 0.43, 0.4], [0.417, 0.390, 0.136, 0.057]),
        ([0.3, 0.21, 0.2, 0.19, 0.18], [0.336, 0.251, 0.177, 0.132, 0.104]),
    ],
)
def test_unit_costs_give_the_weights_garivier_and_kaufmann_print(means, weights):
    solved = bound(Instance("bernoulli", means, [1] * len(means)))
    assert solved.pull_shares.round(3).tolist() == weights
    assert solved.cost_shares == near(solved.pull_shares, rel=1e-14)


@pytest.mark.parametrize("delta", [1e-300, 1e-15, 1e-6, 0.01, 0.1, 0.3, 0.49, 0.499999999, Decimal("0.1")])
def test_the_least_cost_is_hardness_times_kl(delta):
    solved = bound(Instance("bernoulli", [0.9, 0.6], [1, 0.1]))
    with mp.workdps(400):
        d = mpf(float(delta))
        exact = mpf(solved.hardness) * (d * mp.log(d / (1 - d)) + (1 - d) * mp.log((1 - d) / d))
        assert off([solved.cost(delta)], [exact]) <= 1e-13


TIED = Instance("bernoulli", [0.2, 0.5, 0.1, 0.5], [1] * 4, names=["a", "b", "c", "d"])
PAIR = Instance("bernoulli", [0.9, 0.5], [1, 1])
GAUSSIAN, PAPER = Instance("gaussian", [1, 0], [1, 1]), Instance("gaussian", [1.5, 1.0, 0.5], [1, 0.1, 0.01])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: bound(GAUSSIAN).cost(0.5), "the lower bound holds for delta below 0.5 only, got 0.5."),
        (lambda: bound(GAUSSIAN).cost("0.05"), "delta must be a finite number, got '0.05'."),
        (lambda: bound("gaussian"), "bound takes a cabai.Instance, got 'gaussian'"),
        (lambda: bound(TIED), "the best arm is not unique: b, d share the largest mean 0.5,"),
        (lambda: bound(Instance("gaussian", [1e-170, 0], [1, 1])), "the means or costs are too extreme"),
        (lambda: bound(PAPER, epsilon=0.5), "there is no lower bound: the arms 1, 2 are all within epsilon = 0.5"),
        (lambda: bound(PAIR, epsilon=0.1), "with an epsilon, a lower bound is"),
        (lambda: bound(PAPER, epsilon=-1), "epsilon must be"),
        (lambda: bound(PAPER, epsilon=0.1).hardness_of("co"), "the hardness of a policy is only known without an eps"),
        (lambda: bound(PAIR).error(10), "the least error of a budget is known for two gaussian arms without an"),
        (lambda: bound(Instance("gaussian", [1, 0], [1, 4])).error(0), "budget must be positive, got 0."),
        (lambda: Instance("gaussian", [1.001e9, 0], [1, 1]), "means[0] must be from -1e+09 to 1e+09 for family gaussi"),
        (lambda: Instance("poisson", [1e16, 0], [1, 1]), "means[0] must be from 0 to 9.0072e+15 for family poisson"),
        (lambda: Instance("exponential", [1, 1e-101], [1, 1]), "means[1] must be from 1e-100 to 1e+100 for family ex"),
        (lambda: Instance("gaussian", [1, 0], [1, 0.9e-12]), "the largest cost must be at most 1e+12 times the smalle"),
        (lambda: Instance("gaussian", [1, 0], [1e101, 1e100]), "costs[0] must be from 1e-100 to 1e100, got 1e+101."),
    ],
)
def test_what_has_no_bound_is_refused(call, message):
    with pytest.raises(InvalidInput) as error:
        call()
    assert str(error.value).startswith(message)


def test_bounded_rewards_have_no_bound():
    """Rewards between 0 and 1 can be told apart for less than rewards of 0 and 1 with the same means."""
    instance = Instance("bounded", [0.05, 0.03], [1, 1])
    with pytest.raises(InvalidInput, match=r"holds for rewards of 0 and 1, and for other laws on \[0, 1\] less may"):
        bound(instance)
    runs = cabai.simulate(instance, "co", threshold="bets", delta=0.1, trajectories=5)
    summary = runs.summary()
    assert (summary.lower_bound, summary.ratio) == (None, None)
    assert re.search("^lower bound +-\nratio +-$", repr(runs), re.MULTILINE)
    comparison = cabai.compare(instance, ["co"], threshold="bets", delta=0.1, trajectories=5)
    assert comparison.to_dicts()[0]["ratio_interval"] is None
    assert "no lower bound" in repr(comparison)


def solver_state(family, arms):
    """The records that `allocate` works on, with the tolerance of the bound, and `allocate` compiled for the family."""
    setup = ctas_setup(family, arms)
    rules = setup.rules.copy()
    rules["tolerance"] = 1e-16
    return *setup.start(), rules, compiled(setup.bound(allocate))


@cache
def ctas_setup(family, arms):
    return Setup(family_of(family), threshold_of("paper"), policy_of("ctas"), arms=arms, delta=0.1)


def solve(state, means, costs):
    arms, run, rules, allocate = state
    arms["mean"], arms["cost"], run["leader"] = means, costs, int(np.argmax(means))
    hardness = allocate(arms, run, rules)
    return hardness, arms["share"].copy()


def observations(family, arms, seed):
    """Means and costs of a bandit after each of 300 observations; ties, boundary means and new leaders are common."""
    draw = np.random.default_rng(seed)
    truth = draw.choice([0.05, 0.5, 0.9]) * draw.choice([np.ones(arms), draw.random(arms)])
    reward = {
        "bernoulli": lambda a: draw.random() < truth[a],
        "bounded": lambda a: draw.beta(0.2, 0.2),
        "poisson": lambda a: draw.poisson(truth[a]),
        "exponential": lambda a: draw.exponential(truth[a]),
    }.get(family, lambda a: round(draw.normal(truth[a]), 1))
    costs = 10 ** draw.uniform(-6, 0, arms)
    pulls, rewards = np.ones(arms), np.array([reward(a) for a in range(arms)], float)
    for _ in range(300):
        a = draw.integers(arms)
        pulls[a], rewards[a] = pulls[a] + 1, rewards[a] + reward(a)
        costs[a] *= draw.uniform(0.9, 1.1)
        yield rewards / pulls, costs


@pytest.mark.parametrize(("family", "arms"), covering([*FAMILIES, "bounded"], [2, 3, 20]))
def test_warm_starts_give_what_cold_starts_give(family, arms):
    """And, as in a policy, to its tolerance: what is left of each u is at most twice that, of a share four times."""
    warm, rough = solver_state(family, arms), solver_state(family, arms)
    rough[2]["tolerance"] = TOLERANCE
    leaders, ties, boundary = set(), 0, 0
    for seed in range(5):
        for means, costs in observations(family, arms, seed):
            hardness, shares = solve(warm, means, costs)
            cold_hardness, cold_shares = solve(solver_state(family, arms), means, costs)
            assert hardness == near(cold_hardness, rel=ACCURACY)
            assert np.allclose(shares, cold_shares, rtol=ACCURACY, atol=0)
            assert np.allclose(solve(rough, means, costs)[1], cold_shares, rtol=4 * TOLERANCE, atol=0)
            leaders.add(int(warm[1]["leader"]))
            ties += math.isinf(hardness)
            boundary += means.min() == 0 or means.max() == 1
    assert len(leaders) > 1
    if family in ("bernoulli", "poisson"):
        assert ties > 3
        assert boundary > 3


@pytest.mark.parametrize(
    ("family", "layout"), covering([family for family in FAMILIES if family not in GAUSSIANS], costs_by_place(3))
)
def test_the_fallback_of_the_solver_agrees_with_its_usual_method(family, layout):
    """The usual method never meets a negative tolerance, and so leaves the work to the fallback."""
    for means in MEANS[family]:
        costs = costs_by_place(len(means))[layout]
        fallback = solver_state(family, len(means))
        fallback[2]["tolerance"] = -1
        hardness, shares = solve(fallback, means, costs)
        usual_hardness, usual_shares = solve(solver_state(family, len(means)), means, costs)
        assert hardness == near(usual_hardness, rel=ACCURACY)
        assert shares == near(usual_shares, rel=ACCURACY)


@pytest.mark.parametrize("family", FAMILIES)
def test_arms_tied_for_the_best_share_by_the_root_of_their_costs(family):
    hardness, shares = solve(solver_state(family, 4), [0.2, 0.7, 0.7, 0.7], [1, 0.04, 1, 0.25])
    assert hardness == math.inf
    assert shares == near(np.array([0, 0.2, 1, 0.5]) / 1.7, rel=1e-14)


def test_with_an_epsilon_the_best_arm_is_told_from_arms_that_are_better_by_epsilon():
    """By brute force: the best shares on a grid, and for each arm the closest means at which it is epsilon better."""
    means, costs, epsilon = np.array([1.5, 1.0, 0.5]), np.array([1.0, 0.4, 0.3]), 0.3
    found = cabai.bound(cabai.Instance("gaussian", means, costs), epsilon=epsilon)
    first, second = (shares.ravel() for shares in np.meshgrid(*[np.linspace(0.005, 0.99, 198)] * 2))
    pulls = np.array([first, second, 1 - first - second])[:, first + second < 0.996] / costs[:, None]
    least = np.full(pulls.shape[1], np.inf)
    for lam, a in itertools.product(np.linspace(-2, 3, 1001), (1, 2)):  # the means of arm 0, and of arm a less epsilon
        rates = pulls[0] * (means[0] - lam) ** 2 / 2 + pulls[a] * (means[a] - lam - epsilon) ** 2 / 2
        least = np.minimum(least, rates)
    best = least.max()
    assert found.hardness == pytest.approx(1 / best, rel=5e-3)
    assert found.hardness <= 1 / best
    assert found.epsilon == epsilon
    assert repr(found).endswith("(epsilon 0.3)")


def test_a_summary_has_the_bound_with_an_epsilon_if_there_is_one():
    runs = cabai.simulate(PAPER, epsilon=0.2, trajectories=20)
    assert runs.summary().lower_bound == cabai.bound(PAPER, epsilon=0.2).cost(0.05)
    assert cabai.simulate(PAPER, epsilon=0.5, trajectories=20).summary().lower_bound is None


@pytest.mark.parametrize(("costs", "budget"), [pytest.param([1, 1], 200, marks=pytest.mark.slow), ([1, 0.04], 60)])
def test_the_least_error_of_a_budget_is_reached_and_not_beaten(costs, budget):
    """On two gaussian arms, each of them the best once, with 40,000 trajectories each: successive-rejects pulls in the
    optimal ratio; five standard errors, and room for what rounding to whole pulls leaves of the budget."""
    (one, paid), trajectories, gap = costs, 40_000, 0.3
    shift = 2 * gap * math.sqrt(one) / (math.sqrt(one) + math.sqrt(paid))
    here = cabai.Instance("gaussian", [gap, 0], costs)
    mirrored = cabai.Instance("gaussian", [gap - shift, 2 * gap - shift], costs)
    least = cabai.bound(here).error(budget)
    assert cabai.bound(mirrored).error(budget) == pytest.approx(least, rel=1e-6)
    noise = 5 * math.sqrt(least / trajectories)
    for policy in ("successive-rejects", "top-two"):
        rates = [
            cabai.simulate(each, policy, budget=budget, trajectories=trajectories, keep="summary").summary().errors
            / trajectories
            for each in (here, mirrored)
        ]
        assert max(rates) > least - noise
        if policy == "successive-rejects":
            assert rates == pytest.approx([least, least], abs=noise + 0.03 * least)
