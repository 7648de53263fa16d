"""A new study that begins with observations made elsewhere."""

from __future__ import annotations

import csv
import io

import pytest

import cabai
from shell import here, refused
from studies import new, reloaded, start

USUAL = {"arms": ["a", "b", "c"], "family": "bernoulli", "policy": "co", "unseen": True}


def source(**options):
    """A study with some observations: two failed, one waits, one is under way."""
    study = new(**options)
    start(study, [1, 0, 1, 1, 0, 1])
    study.tell(study.ask(), failed="no luck", cost=0.5)
    first, second = study.ask(2)
    study.tell(second, 1, cost=1.0)
    assert study.status().waiting == 1
    return study, first


@pytest.mark.parametrize("kind", ["study", "csv", "parquet", "frame"])
def test_what_counted_elsewhere_counts_here_and_is_marked(kind, tmp_path):
    study, _ = source()
    file = tmp_path / f"all.{kind}"
    if kind == "csv":
        file.write_text("".join(cabai.study.show.exporting.lines(study.columns, study.observations(), [], "csv")))
    if kind == "parquet":
        study.to_frame().to_parquet(file)
    given = {"study": study, "frame": study.to_frame()}.get(kind, file)
    found = new(**USUAL, import_from=given)
    mine, its = found.status(), study.status()
    assert [(arm.pulls, arm.mean, arm.failures) for arm in mine.arms] == [
        (arm.pulls, arm.mean, arm.failures) for arm in its.arms
    ]
    assert (mine.spent, mine.leader, mine.imported) == (6.5, its.leader, 7)  # without what waits
    assert mine.evidence == its.evidence
    origin = {"study": f"study {study.name}", "frame": "a DataFrame"}.get(kind, file.name)
    rows = found.observations()
    assert [row["origin"] for row in rows] == [origin] * 7
    assert all(row["counted"] == (row["failed"] is None) for row in rows)
    assert "7 told by import" in str(mine)
    assert reloaded(found).status() == mine
    start(found, [1, 1])
    assert [row["origin"] for row in found.observations()[7:]] == [None, None]


def test_what_is_imported_may_decide_at_once_and_a_plain_table_will_do(tmp_path):
    study = new(arms=["a", "b"], policy="uniform")
    study.run(lambda arm: (int(arm == "a"), 1.0))
    again = new(arms=["a", "b"], policy="uniform", import_from=study, unseen=True)
    assert (study.decision, again.decision, again.status().reason) == ("a", "a", "evidence")
    tight = new(arms=["a", "b"], delta=1e-9, max_pulls=5, import_from=study, unseen=True)
    assert tight.status().reason == "max_pulls"
    (tmp_path / "trials.csv").write_text("arm,reward\na,1\nb,0\na,true\n")
    study = new(arms=["a", "b"], costs=[1, 2], import_from=tmp_path / "trials.csv", unseen=True)
    assert [(arm.pulls, arm.mean, arm.spent) for arm in study.status().arms] == [(2, 1.0, 2.0), (1, 0.0, 2.0)]
    study = new(costs=[1, 1, 1])
    study.tell_counts({"a": (100, 30), "b": (100, 31), "c": (100, 29)})
    found = new(costs=[1, 1, 1], import_from=study, unseen=True)
    assert [(arm.pulls, arm.mean) for arm in found.status().arms] == [(100, 0.3), (100, 0.31), (100, 0.29)]
    assert reloaded(found).status().evidence == study.status().evidence


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"unseen": False}, r"set unseen=True \(--unseen\) if both are true: nobody looked at these data"),
        ({"unseen": "yes"}, "set unseen=True"),
        ({"threshold": "stylized"}, "is proven no matter how pulls were chosen, got threshold stylized"),
        ({"threshold": "calibrated(c=3)"}, "certified only for pulls that its policy chose"),
        ({"family": None, "policy": "top-two", "items": 10}, "reused with cabai.evaluate"),
        ({"arms": ["a", "b"]}, "no arm 'c' in this study. Leaving out an arm because of its results has a price"),
        ({"family": "exponential", "policy": "top-two"}, "pull .*: .*"),
        ({"storage": "http://127.0.0.1:9"}, "cannot be imported over HTTP"),
    ],
)
def test_it_is_refused_where_it_would_void_the_proof(options, message):
    study, _ = source()
    with pytest.raises(cabai.InvalidInput, match=message):
        new(**USUAL | options, import_from=study)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("arm,cost\na,1\n", "has no column 'reward'"),
        ("arm,reward,cost\na,1,\n", "row 2: a result needs a cost"),
        ("arm,reward,cost\na,,1\n", "row 2: a result needs a reward"),
        ("arm,reward,cost\na,1,-1\n", "row 2: cost must be positive"),
        ("arm,reward,cost\na,one,1\n", "row 2: reward must be a number"),
        ("arm,reward,cost\nx,1,1\n", "row 2: there is no arm 'x'"),
        ("arm,reward,cost\n", "has no rows"),
        ("arm,reward,cost,counted\na,1,1,False\n", "there is nothing to import"),
        (f"pull,arm,reward,cost\nx-{'9' * 5000},a,1,1\n", "a pull's id ends in its number"),
        ("arm,reward,cost,pulls\na,1,1,2.5\n", "row 2: pulls must be a whole number below 2.*, got 2.5"),
        ("arm,reward,cost,pulls\na,0,1,0\n", "row 2: at least one arm must have been pulled"),
        ("arm,reward,cost,pulls\na,1.9,1,3\n", "row 2: a sum of rewards must be a whole number below 2.*, got 1.9"),
        ("arm,reward,cost,pulls\na,4,1,3\n", "row 2: arm 'a' was pulled 3 times"),
        ("arm,reward,cost,pulls\na,1,1,9e15\nb,1,1,9e15\n", "too many pulls: there must be fewer than 2"),
        ("arm,reward,cost,failed\na,1,1,no luck\n", "row 2: a failed pull has no reward, got 1"),
        ("arm,reward,cost,failed\na,,1,False\n", "row 2: a result needs a reward"),
        ("arm,reward,cost,failed,pulls\na,,1,no luck,3\n", "row 2: pulls that failed are told one by one"),
    ],
)
def test_bad_tables_make_no_study(text, message, tmp_path):
    (tmp_path / "t.csv").write_text(text)
    before = cabai.list_studies(storage="memory")
    with pytest.raises(cabai.InvalidInput, match=message):
        new(**USUAL, import_from=tmp_path / "t.csv")
    assert cabai.list_studies(storage="memory") == before


def test_a_study_that_there_is_imports_nothing_and_says_so():
    study, first = source()
    options = {**USUAL, "storage": "memory", "load_if_exists": True}
    cabai.create_study("began with nothing", **options)
    began = [cabai.create_study("began with it", **options, import_from=study) for _ in range(2)]
    assert began[0].status() == began[1].status()  # it is imported once
    other = study.to_frame()
    other.loc[0, "cost"] = 7.0
    for name, given in (("began with nothing", study), ("began with it", other)):
        with pytest.raises(cabai.InvalidInput, match="did not begin with these observations, and only a new study can"):
            cabai.create_study(name, **options, import_from=given)
    assert cabai.create_study("began with it", **options).status().imported == 7
    study.tell(first, 1, cost=1.0)
    with pytest.raises(cabai.InvalidInput, match="did not begin with these observations"):
        cabai.create_study("began with it", **options, import_from=study)


@pytest.mark.parametrize("no", [False, 0, None, "", "false", "False", "0", "n/a"])
def test_a_column_that_says_that_nothing_failed_makes_no_failures(no):
    pd = pytest.importorskip("pandas")
    rows = {"arm": ["a", "b", "c", "a"], "reward": [1, 0, 1, None], "cost": [1.0] * 4, "failed": [no, no, no, True]}
    found = new(**USUAL, import_from=pd.DataFrame(rows).astype({"failed": object}))
    assert [(arm.pulls, arm.failures) for arm in found.status().arms] == [(1, 1), (1, 0), (1, 0)]
    assert found.observations()[3]["failed"] == "failed"


def test_results_of_an_arm_that_joined_are_not_those_of_a_first_arm(tmp_path):
    study = new(arms=["a", "b"], policy="top-two", reserve=0.2, storage=f"sqlite:///{tmp_path}/s.db")
    stale = cabai.load_study(study.name, storage=study.storage)
    start(study, [1, 0])
    study.add_arm("c")
    for given in (study, stale):
        with pytest.raises(cabai.InvalidInput, match=r"arm .c. joined study .* later, perhaps because"):
            new(**USUAL, import_from=given)


def test_from_the_shell(tmp_path):
    (tmp_path / "trials.csv").write_text("arm,reward,cost\na,1,1\nb,0,1\n")

    def create(name, *options):
        return ["study", "create", name, "--arms", "a,b", "--family", "bernoulli", *options]

    assert "--unseen" in refused(*create("x", "--import-from", "trials.csv"), cwd=tmp_path)
    for name, given in (("x", "trials.csv"), ("y", "x")):
        assert here(*create(name, "--import-from", given, "--unseen"), cwd=tmp_path).returncode == 0
    rows = list(csv.DictReader(io.StringIO(here("study", "export", "x", cwd=tmp_path).stdout)))
    assert [row["origin"] for row in rows] == ["trials.csv"] * 2
    assert "2 told by import" in here("study", "status", "y", cwd=tmp_path).stdout
    assert "did you mean --import-from?" in refused(*create("z", "--import-study", "x", "--unseen"), cwd=tmp_path)
