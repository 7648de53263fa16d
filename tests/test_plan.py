"""What a study will cost, before it is paid: against what studies then pay, and against formulas of no common code."""

from __future__ import annotations

import json
import math
import random

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import cabai
from cabai.planning.results import Bills
from conftest import drawer
from shell import here
from storages import BOTH
from studies import new

TWO = {"family": "bernoulli", "means": ["0.7..0.9", "0.4..0.6"], "costs": [1, 0.5]}
THREE = {"family": "bernoulli", "means": ["0.6..0.75", "0.3..0.55", "0.05..0.1"], "costs": [1, 0.5, 0.2]}
SLOW = pytest.mark.slow


@pytest.fixture(scope="module")
def three() -> cabai.results.Plan:
    return cabai.plan(**THREE, budget=150, draws=150)


@pytest.mark.parametrize(
    ("family", "direction", "means"),
    [
        ("bernoulli", "maximize", [0.9, 0.5, 0.2]),
        pytest.param("gaussian(variance=0.25)", "minimize", [1.0, 0.2, 2.0], marks=SLOW),
        pytest.param("poisson", "minimize", [0.5, 3.0, 6.0], marks=SLOW),
        pytest.param("bounded(low=-1, high=3)", "maximize", [1.5, -0.5, 0.0], marks=SLOW),
    ],
)
def test_a_plan_pays_what_a_study_pays_that_sees_the_same_rewards(family, direction, means):
    costs, sign = [1, 0.5, 0.2], -1 if direction == "minimize" else 1
    planned = cabai.plan(family=family, means=means, costs=costs, direction=direction, draws=20, worth=False, seed=3)
    mirrored = direction == "minimize" and cabai.families.family_of(family).is_symmetric
    draw = drawer(cabai.Instance(family, [sign * mean for mean in means] if mirrored else means, costs), 3, 0)
    study = new(policy="top-two", family=family, direction=direction, seed=3)

    def test(arm: str) -> tuple[float, float]:
        reward, cost = draw("abc".index(arm))
        return (sign * reward if mirrored else reward), cost

    assert study.run(test).spent == pytest.approx(planned.bills.costs[0], rel=1e-12)


def test_bills_are_those_of_a_simulation_and_say_which_budget_is_enough():
    planned = cabai.plan(family="bernoulli", means=[0.8, 0.5], costs=[1, 0.5], draws=60).bills
    runs = cabai.simulate(cabai.Instance("bernoulli", [0.8, 0.5], [1, 0.5]), trajectories=60)
    assert (planned.costs.tolist(), planned.wrong.tolist()) == (runs.costs.tolist(), runs.wrong.tolist())
    planned = cabai.plan(**TWO, draws=100)
    costs = np.sort(planned.bills.costs)
    assert (planned.budget, planned.chance.value) == (costs[79], 0.8)
    assert cabai.plan(**TWO, draws=100, chance=0.9).budget == costs[89]
    said: list[str] = []
    one, two = (cabai.plan(**TWO, budget=60, draws=50, workers=n, progress=said.append).to_dict() for n in (1, 2))
    assert one == two
    assert said[0] == "simulating studies"
    assert cabai.plan(**TWO, budget=60, draws=50, seed=1).to_dict() != one


def test_two_gaussian_arms_pay_what_the_closed_form_says():
    """2v (sqrt(c1) + sqrt(c2))²/gap² per nat, at least, and not much more where delta is tiny: the mean over truths of
    that, with 400 of them; between 1 and 1.35 times it, far from both."""
    delta, costs = 1e-12, np.array([1.0, 0.25])
    planned = cabai.plan(
        family="gaussian(variance=1)", means=["1..1.5", "0..0.5"], costs=costs.tolist(), delta=delta, draws=400
    )
    assert planned.truths is not None
    assert not planned.bills.cut.any()
    gaps = planned.truths.means[:, 0] - planned.truths.means[:, 1]
    nats = (1 - 2 * delta) * math.log((1 - delta) / delta)
    least = nats * 2 * np.sqrt(costs).sum() ** 2 / gaps**2
    assert 1.0 < planned.bills.costs.mean() / least.mean() < 1.35


@SLOW
def test_a_long_study_pays_the_same_in_steps():
    """Beyond 1000 pulls a plan asks the policy after every 0.1 % of them. The mean bill of 2000 studies differs from
    that of a simulation on the same rewards by less than 1 %, and five standard errors of the difference."""
    means, costs = [0.1, 0.0, -0.02], [0.05, 0.03, 0.01]
    planned = cabai.plan(family="gaussian(variance=1)", means=means, costs=costs, draws=2000, worth=False).bills
    runs = cabai.simulate(cabai.Instance("gaussian", means, costs), trajectories=2000)
    more = (planned.costs - runs.costs) / runs.costs.mean()
    assert abs(more.mean()) < 0.01 + 5 * more.std() / math.sqrt(2000)
    assert runs.steps.mean() > 5000 > planned.cut.sum() == 0


def test_what_was_cut_is_never_told_as_a_bill():
    costs = np.array([1.0, 2.0, 3.0, 4.0, 2.5])
    decided, cut = np.array([1, 1, 1, 1, 0], bool), np.array([0, 0, 0, 0, 1], bool)
    bills = Bills(costs, decided, np.zeros(5, bool), cut)
    assert bills.quantile(0.4) == (2.0, 0.0, False)
    assert bills.quantile(0.6) == (2.5, 0.0, True)  # a study that was cut at 2.5 may pay 3.5
    assert bills.quantile(1.0) == (4.0, 0.0, True)
    assert (bills.mean.at_least, bills.needed(0.8).at_least) == (True, True)
    assert (bills.chance(2.0).value, bills.chance(2.0).at_least) == (0.4, False)
    assert (bills.chance(3.5).value, bills.chance(3.5).at_least) == (0.6, True)
    assert bills.needed(0.4) == (2.0, 0.0, False)
    never = Bills(costs, decided, np.zeros(5, bool), np.zeros(5, bool))  # the fifth ended without a decision
    assert (never.needed(1.0), never.needed(0.8)) == (None, (4.0, 0.0, False))


def test_arms_that_are_tied_are_cut_and_told_so():
    small = cabai.plan(**TWO, budget=10, draws=50)  # too small even for the easiest question
    assert small.solved["delta"].value is small.solved["gap"].value is None
    assert "\n  even a delta of 0.5 is not enough: chance 38 ± 7 %\n" in str(small)
    planned = cabai.plan(family="bernoulli", means=[0.5, 0.5, 0.5], costs=[1, 1, 1], budget=50, draws=20, worth=False)
    found = planned.to_dict()
    assert planned.bills.cut.any()
    assert "mean_cost" in found["at_least"]
    assert "cost_quantiles.0.99" in found["at_least"]
    assert "chance" not in found["at_least"]  # they were run to ten times the budget
    budget = found["solved"]["budget"]
    assert budget["value"] is None
    assert budget["tried"] >= 500  # is not enough
    for told in (", mean at least ", "10 % or more pay more than", "cut short before a decision"):
        assert told in repr(planned)


def test_a_study_that_may_not_decide_has_no_budget_that_is_enough(tmp_path):
    (tmp_path / "study.toml").write_text(RECIPE + "max_pulls = 10\n")
    planned = cabai.plan(tmp_path / "study.toml", means=[0.6, 0.5], costs=[1, 1], draws=40)
    assert not planned.bills.cut.any()
    assert (planned.bills.costs <= 10).all()
    assert planned.budget is None
    assert "No budget is enough for a chance of 80 %" in repr(planned)


def test_what_a_budget_is_enough_for_is_enough_and_no_more(three):
    """Each value found is simulated again on the same truths: there the chance is as told, and well below it is not
    reached."""
    options = THREE | {"budget": 150, "draws": 150, "worth": False}
    found = three.solved
    assert found["epsilon"].value > 0  # at 0 the chance is less
    assert three.chance.value < 0.8
    again = cabai.plan(**options, epsilon=found["epsilon"].value, delta=0.05)
    assert again.chance.value == found["epsilon"].chance.value >= 0.8
    assert cabai.plan(**options, epsilon=found["epsilon"].value / 1.5, delta=0.05).chance.value < 0.8
    again = cabai.plan(**options, delta=found["delta"].value, epsilon=0)
    assert again.chance.value == found["delta"].chance.value >= 0.8
    assert found["gap"].chance.value >= 0.8


def test_a_gap_is_that_of_the_best_arm_and_the_next():
    exact = {"family": "gaussian(variance=1)", "costs": [1, 1], "budget": 100, "draws": 150}
    exact |= {"epsilon": 0.0, "delta": 0.05}
    found = cabai.plan(means=[1.0, 0.7], **exact).solved["gap"]
    assert cabai.plan(means=[0.7 + found.value, 0.7], **exact).chance.value == found.chance.value >= 0.8
    assert cabai.plan(means=[0.7 + found.value / 1.2, 0.7], **exact).chance.value < 0.8


def test_an_arm_that_is_never_best_adds_to_the_bill(three):
    _, second, third = three.arms
    assert sum(arm.best for arm in three.arms) == pytest.approx(1)
    assert third.best == 0
    assert third.adds.value > 0
    fewer = {key: THREE[key][:2] for key in ("means", "costs")}
    without = cabai.plan(family="bernoulli", **fewer, budget=150, draws=150)
    paid = (np.minimum(three.bills.costs, 150) - np.minimum(without.bills.costs, 150)).mean()
    assert third.adds.value == pytest.approx(paid)
    assert third.chance_without.value == without.chance.value
    assert second.adds.value > third.adds.value  # the rival is what costs


@pytest.mark.parametrize(
    ("prior", "mean", "sd"),
    [
        ("beta(30, 70)", 0.3, math.sqrt(0.3 * 0.7 / 101)),
        ("normal(0.3, 0.02)", 0.3, 0.02),
        ("gamma(9, 0.03)", 0.27, 0.09),
        ("lognormal(0.2, 0.1)", 0.2 * math.exp(0.005), 0.2 * math.exp(0.005) * math.sqrt(math.expm1(0.01))),
        ((0.2, 0.4), 0.3, 0.2 / math.sqrt(12)),
        (stats.beta(30, 70), 0.3, math.sqrt(0.3 * 0.7 / 101)),
    ],
)
def test_priors_have_the_mean_and_deviation_they_should(prior, mean, sd):
    truths = cabai.plan(family="bernoulli", means=[prior, 0.95], costs=[1, prior], draws=1000, worth=False).truths
    for drawn in (truths.means[:, 0], truths.costs[:, 1]):
        assert drawn.mean() == pytest.approx(mean, abs=5 * sd / math.sqrt(1000))
        assert drawn.std() == pytest.approx(sd, rel=0.15)
    above = cabai.plan(family="bernoulli", means=["normal(0.9, 0.2)", 0.2], draws=300, worth=False).truths.means
    assert (above <= 1).all()  # what a family does not have is drawn again
    assert (above[:, 0] > 0.9).sum() > 50


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"means": ["0.3..0.2", 0.5]}, r"means\[0\]: a range goes from low to high, got 0.3..0.2; write 0.2..0.3."),
        ({"means": ["0.3..1.2", 0.5]}, r"means\[0\] must be in \[0, 1\] for the bernoulli family, got 1.2."),
        ({"means": ["a lot", 0.5]}, r"means\[0\] must be a number, a range such as 0.02..0.03, or one of beta\(a, b\)"),
        ({"means": ["normal(7, 0.1)", 0.5]}, r"means\[0\], almost always: normal\(7, 0.1\) must be in \[0, 1\]"),
        ({"means": [(0.1, 0.2, 0.3), 0.5]}, r"in Python a range is \(low, high\)"),
        ({"costs": [1, 2, 3]}, "there are 2 arms, got 3 costs: give one for each arm."),
        ({"arms": ["a", "b", "c"]}, "there are 3 arms, got 2 means: give one for each arm."),
        ({"chance": 1}, "chance must lie strictly between 0 and 1, got 1."),
        ({"draws": 3}, "draws must be a whole number of at least 20, got 3."),
        ({"curve": "delta"}, "curve must be one of gap, epsilon, got 'delta'."),
        ({"family": None}, "a study needs a family"),
        ({"family": "gaussian"}, "a plan needs to know how much rewards vary"),
        ({"means": None}, "a plan needs what is known of each arm's mean"),
        ({"law": "beta"}, "law and sd are only for bounded rewards"),
        ({"family": "bounded", "law": "beta", "sd": ["0.1", "0.2", "0.3"]}, "there are 2 arms, got 3 sd"),
        ({"items": 100}, "a race on a dataset is planned from a table of scores: leave out means"),
        ({"items": 100, "means": None}, "a race on a dataset is planned from scores of the arms on some of its items"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told(given, message):
    usual = {"family": "bernoulli", "means": [0.7, 0.5], "costs": [1, 1], "draws": 20}
    with pytest.raises(cabai.InvalidInput, match=message):
        cabai.plan(**usual | given)


EVEN = np.linspace(4, 6, 101).tolist()
PILOTS = {
    "bernoulli": ([1] * 48 + [0] * 12, 48.5 / 61, math.sqrt(48.5 * 12.5 / 61**2 / 62)),
    "gaussian(variance=4)": ([1.0, 3.0, 2.0, 2.0], 2.0, 1.0),
    "poisson": ([3, 1, 2, 2], 8.5 / 4, math.sqrt(8.5) / 4),
    "exponential": ([2.0] * 100, 200 / 99, 200 / 99 / math.sqrt(98)),
    "bounded(low=0, high=10)": (EVEN, 5.0, np.std(EVEN, ddof=1) / math.sqrt(101)),
}


@pytest.mark.parametrize(
    "family", [pytest.param(each, marks=() if each.startswith(("bern", "gauss")) else SLOW) for each in PILOTS]
)
def test_a_pilot_says_what_its_posterior_says(family):
    """2000 truths: their mean within 5 standard errors, and their deviation, which shrinks with the pilot's size."""
    rewards, mean, sd = PILOTS[family]
    pilot = {"a": rewards, "b": rewards[1:]}
    if family == "bernoulli":
        pilot = pd.DataFrame([(arm, y, 0.5) for arm in pilot for y in pilot[arm]], columns=["arm", "reward", "cost"])
    planned = cabai.plan(pilot, family=family, draws=2000, worth=False)
    assert family != "bernoulli" or (planned.truths.costs == 0.5).all()
    drawn = planned.truths.means[:, 0]
    assert drawn.mean() == pytest.approx(mean, abs=5 * sd / math.sqrt(2000))
    assert drawn.std() == pytest.approx(sd, rel=0.12)
    assert planned.arms[0].mean == f"{np.mean(rewards):.4g} in {len(rewards)}"


@SLOW
def test_a_pilot_of_rewards_that_vary_little_keeps_their_deviation():
    draw = np.random.default_rng(0)
    rewards = {"a": draw.normal(0.7, 0.02, 200), "b": draw.normal(0.6, 0.02, 200)}
    planned = cabai.plan(rewards, family="bounded", draws=60)
    assert planned.truths.law == "beta"
    assert planned.truths.sds.mean() == pytest.approx(0.02, rel=0.1)
    assert planned.bills.mean.value < cabai.plan(family="bounded", means=[0.7, 0.6], draws=60).bills.mean.value / 3


def test_a_pilot_that_says_too_little_or_is_no_list_of_numbers_is_refused(tmp_path):
    for table, message in (
        ("arm,cost\na,1\nb,1\n", "needs a name|score|reward|arm"),
        ("arm,reward\na,1\na,0\nb,1\n", "the pilot needs at least 2 rewards of each arm, got 1 of arm 'b'."),
        ("arm,reward\na,1\na,0\nb,1\nb,0.5\n", "a reward of arm 'b' must be 0 or 1"),
        ("arm,reward,cost\na,1,0\na,0,0\nb,1,1\nb,0,1\n", "the pilot has no positive cost for arm 'a'"),
    ):
        (tmp_path / "pilot.csv").write_text(table)
        with pytest.raises(cabai.InvalidInput, match=message):
            cabai.plan(tmp_path / "pilot.csv", family="bernoulli", draws=20)
    for rewards in (["x", "y"], None, 1, [[1, 0]]):
        with pytest.raises(cabai.InvalidInput, match="the rewards of arm 'b' must be a list of numbers, got "):
            cabai.plan({"a": [1, 0], "b": rewards}, family="bernoulli", draws=20)


@BOTH
def test_a_stored_study_is_planned_again_from_what_it_has_seen(url):
    study = cabai.create_study("judges", arms=["a", "b"], family="bernoulli", max_pulls=60, delta=0.1, storage=url)
    draw = random.Random(1)
    study.run(lambda arm: (int(draw.random() < {"a": 0.8, "b": 0.4}[arm]), 0.5))
    found = cabai.plan(cabai.load_study("judges", storage=url), draws=40, budget=20)
    assert found.delta == 0.1
    seen = [each["reward"] for each in study.observations() if each["arm"] == "a"]
    assert found.arms[0].mean == f"{np.mean(seen):.4g} in {len(seen)}"
    done = here("plan", "--study", "judges", "--storage", url, "--draws", "40", "--budget", "20", "--json")
    assert json.loads(done.stdout) == found.to_dict()


def test_arms_that_were_dropped_are_not_planned_and_a_race_is_planned_again():
    study = new(costs=[1, 2, 3], policy="top-two")
    study.tell_many([{"pull": pull, "reward": i % 2} for i, pull in enumerate(study.ask(9))])
    study.drop("b")
    found = cabai.plan(study, budget=40, draws=20, worth=False)
    assert [(arm.name, arm.cost) for arm in found.arms] == [("a", "1"), ("c", "3")]
    table = scores(80)
    study = cabai.create_study("race", arms=[*MODELS], items=80, costs=PRICES, seed=1, storage="memory")
    study.run(lambda arm, item: table[arm][item])
    planned = cabai.plan(study, items=500, draws=30, worth=False)
    assert (planned.items, [arm.cost for arm in planned.arms]) == (500, ["1", "0.3", "0.1"])


RECIPE = 'family = "bernoulli"\narms = ["small", "large"]\ncommand = "true"\ndelta = 0.1\n'


def test_a_file_says_the_settings_and_the_shell_the_ranges(tmp_path):
    (tmp_path / "study.toml").write_text(RECIPE + "max_cost = 40\ncosts = [0.5, 1]\nepsilon = 0.01\n")
    (tmp_path / "pilot.csv").write_text("arm,reward,cost\n" + "large,1,2\nlarge,0,2\nsmall,1,2\nsmall,0,2\n" * 9)
    done = here("plan", "study.toml", "--means", "0.4..0.6,0.7..0.9", "--draws", "40", "--json", cwd=tmp_path)
    means = ["0.4..0.6", "0.7..0.9"]
    expected = cabai.plan(
        family="bernoulli", arms=["small", "large"], means=means, costs=[0.5, 1], budget=40, delta=0.1, epsilon=0.01,
        draws=40,
    ).to_dict()  # fmt: skip
    found = json.loads(done.stdout)
    solved = found.pop("solved")  # a file's delta and epsilon may be reached or not: that is told too
    assert set(solved) == {"budget", "epsilon", "gap", "delta"}
    assert found == {key: expected[key] for key in expected if key != "solved"}
    done = here("plan", "study.toml", "--pilot", "pilot.csv", "--draws", "40", "--json", cwd=tmp_path)
    found = json.loads(done.stdout)
    assert [arm["name"] for arm in found["arms"]] == ["small", "large"]
    assert [arm["cost"] for arm in found["arms"]] == ["0.5", "1"]  # the file's win


@SLOW  # it compiles what nothing else here needs
def test_where_times_are_rewards_they_are_the_costs_too(tmp_path):
    lines = 'arms = ["a", "b"]\nreward = "seconds"\ntimeout = 2\ncommand = "true"\n'
    (tmp_path / "study.toml").write_text(lines)
    planned = cabai.plan(tmp_path / "study.toml", means=["0.1..0.2", "1..1.5"], draws=20)
    assert planned.direction == "minimize"
    assert (planned.truths.costs == planned.truths.means).all()
    assert [arm.cost for arm in planned.arms] == ["its time", "its time"]


def test_the_shell_prints_what_python_does(tmp_path):
    options = ["--family", "bernoulli", "--means", "0.7..0.9,0.4..0.6", "--costs", "1,0.5", "--budget", "60"]
    options += ["--draws", "50", "--curve", "gap"]
    done = here("plan", *options, "--plot", "bill.svg", cwd=tmp_path)
    expected = cabai.plan(**TWO, budget=60, draws=50, curve="gap")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{expected}\nwritten: bill.svg\n", "")
    picture = (tmp_path / "bill.svg").read_text()
    assert all(words in picture for words in ("the bill: median", "budget 60", "ahead of the next"))
    found = json.loads(here("plan", *options, "--json").stdout)
    assert found == expected.to_dict()
    medians = [point["cost_quantiles"]["0.5"] for point in found["curve"]["points"]]
    assert medians == sorted(medians, reverse=True)
    assert len(medians) >= 3  # those with which the best mean is still a bernoulli's


def scores(items: int, seed: int = 0) -> dict[str, list[float]]:
    draw = np.random.default_rng(seed)
    hard = draw.random(items)
    return {name: (draw.random(items) < mean - 0.3 * hard).astype(float).tolist() for name, mean in MODELS.items()}


MODELS = {"large": 0.95, "medium": 0.8, "small": 0.5}
PRICES = {"large": 1.0, "medium": 0.3, "small": 0.1}


def test_a_race_is_planned_from_a_table_and_pays_what_a_replay_pays():
    """A pilot of 3000 items leaves little open: the plan for 1000 pays what races on 1000 of its items pay. Both means
    are of at least 200 races: they differ by less than 5 standard errors, and the pilot's own."""
    whole = scores(3000)
    planned = cabai.plan(whole, items=1000, costs=PRICES, draws=300)
    parts = ({arm: each[i : i + 1000] for arm, each in whole.items()} for i in (0, 1000, 2000))
    replayed = np.concatenate([cabai.replay(part, costs=PRICES, repeats=100).costs for part in parts])
    spread = math.sqrt(planned.bills.mean.error**2 + replayed.var() / 300)
    assert abs(planned.bills.mean.value - replayed.mean()) < 5 * spread + 0.1 * replayed.mean()
    assert planned.full_cost == pytest.approx(1000 * sum(PRICES.values()))
    assert (planned.bills.costs <= planned.full_cost * (1 + 1e-9)).all()
    assert planned.bills.wrong.mean() <= 0.05


def test_what_a_budget_is_enough_for_on_a_dataset():
    planned = cabai.plan(scores(300), items=2000, costs=PRICES, budget=150, draws=100)
    assert planned.to_dict()["gap"] is None
    found = planned.solved
    again = cabai.plan(scores(300), items=2000, costs=PRICES, budget=150, draws=100, epsilon=found["epsilon"].value)
    assert again.chance.value == found["epsilon"].chance.value
    assert found["epsilon"].value == 0 or found["epsilon"].chance.value >= 0.8
    assert planned.arms[2].adds.value > 0


def test_the_shell_plans_a_race(tmp_path):
    table = pd.DataFrame(scores(60))
    table.to_csv(tmp_path / "scores.csv", index=False)
    (tmp_path / "prices.csv").write_text("arm,cost\nlarge,1\nmedium,0.3\nsmall,0.1\n")
    options = ["--items", "500", "--costs", "prices.csv", "--draws", "50", "--budget", "200"]
    done = here("plan", "scores.csv", *options, "--plot", "bill.png", cwd=tmp_path)
    assert done.stdout.startswith("champion race, maximize, 3 arms on 500 items, delta 0.05, from scores on 60\n")
    assert (tmp_path / "bill.png").stat().st_size > 1000
    found = json.loads(here("plan", "scores.csv", *options, "--json", cwd=tmp_path).stdout)
    assert (found["items"], found["full_cost"]) == (500, pytest.approx(700))
    (tmp_path / "study.toml").write_text('arms = ["small", "large"]\nitems = 400\ncommand = "true"\n')
    done = here("plan", "study.toml", "--pilot", "scores.csv", "--draws", "30", "--no-worth", cwd=tmp_path)
    assert done.stdout.startswith("champion race, maximize, 2 arms on 400 items, delta 0.05, from scores on 60\n")
    for costs, said in (("1,0.5", "there are 3 arms, got 2 costs"), ("1..2,1,1", "costs must be numbers or a table")):
        assert said in here("plan", "scores.csv", "--draws", "30", "--costs", costs, cwd=tmp_path).stderr
    done = here("plan", "scores.csv", "--draws", "30", "--costs", "1,0.3,0.1", "--no-worth", cwd=tmp_path)
    assert "Evaluating everything costs 84." in done.stdout
    assert "Planned for 60 items, as many as the table has; --items changes that." in done.stdout
    done = here("plan", "study.toml", "--draws", "30", cwd=tmp_path)
    assert done.stderr.startswith("cabai: a race on a dataset is planned from scores")


@pytest.mark.parametrize(
    ("studies", "least", "most", "family", "ranges", "costs"),
    [
        (30, 12, 30, "bernoulli", [(0.7, 0.95), (0.1, 0.35)], [1, 0.5]),
        pytest.param(600, 420, 540, "bernoulli", [(0.7, 0.95), (0.1, 0.35), (0.2, 0.5)], [1, 0.5, 0.1], marks=SLOW),
        pytest.param(600, 420, 540, "gaussian(variance=1)", [(2.0, 3.0), (0.0, 1.5)], [1, 0.1], marks=SLOW),
    ],
)
def test_studies_pay_what_was_planned(studies, least, most, family, ranges, costs):
    """Live studies, on truths drawn from the ranges, pay between the plan's 10 and 90 %. Of 30, fewer than 12 in such a
    range happen by chance less than once in a million. Of 600, a share of 0.8 has a standard error of 0.016, and the
    ends of the range, of 4000 simulated studies, add 0.007: ten points are more than five of these."""
    planned = cabai.plan(family=family, means=ranges, costs=costs, draws=4000 if studies > 30 else 1000, worth=False)
    assert not planned.bills.quantile(0.9).at_least
    low, high = (planned.to_dict()["cost_quantiles"][q] for q in ("0.1", "0.9"))
    draw, inside = np.random.default_rng(2), 0
    reward = {"bernoulli": lambda mean: float(draw.random() < mean)}.get(family, draw.normal)
    for _ in range(studies):
        means = [draw.uniform(*each) for each in ranges]
        arms = [str(a) for a in range(len(means))]
        study = new(policy="top-two", arms=arms, family=family, seed=int(draw.integers(2**62)))
        paid = study.run(lambda arm, means=means: (reward(means[int(arm)]), costs[int(arm)])).spent
        cabai.delete_study(study.name, storage="memory")
        inside += low <= paid <= high
    assert least <= inside <= most
