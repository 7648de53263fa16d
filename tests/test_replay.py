"""`cabai.replay` and `cabai replay`: users' tables, what is read from them, and what is reported."""

from __future__ import annotations

import json
import random
import sys

import numpy as np
import pandas as pd
import pytest

import cabai
from cabai.datasets import ScoreTable, read_table
from cabai.datasets.replaying import replay
from cabai.errors import MissingScores
from cabai.support.validation import InvalidInput
from shell import here

ARMS, ITEMS = ("small", "large", "huge"), tuple(f"q{i}" for i in range(120))


def drawn_scores() -> np.ndarray:
    draw = random.Random(5).random
    return np.array([[float(draw() < mean) for _ in ITEMS] for mean in (0.2, 0.5, 0.9)])


SCORES = drawn_scores()
COSTS = np.array([[1.0], [2.0], [5.0]]) * np.linspace(0.5, 1.5, len(ITEMS))
TABLE = ScoreTable(ARMS, ITEMS, SCORES, COSTS)
WIDE = pd.DataFrame(SCORES.T, index=list(ITEMS), columns=list(ARMS))
CELLS = [(arm, item, SCORES[a, i], COSTS[a, i]) for i, item in enumerate(ITEMS) for a, arm in enumerate(ARMS)]
LONG = pd.DataFrame(CELLS, columns=["arm", "item", "score", "cost"])


def same(table: ScoreTable, costs: bool = False) -> bool:
    is_costly = table.costs is not None and np.array_equal(table.costs, COSTS) if costs else table.costs is None
    return table.arms == ARMS and table.items == ITEMS and np.array_equal(table.scores, SCORES) and is_costly


def test_every_form_of_a_table_is_read_alike(tmp_path):
    wide = WIDE.rename_axis("question_id").reset_index()
    wide.to_csv(tmp_path / "wide.csv", index=False)
    WIDE.to_csv(tmp_path / "unnamed.csv")  # the first column has no name
    wide.to_csv(tmp_path / "wide.tsv", index=False, sep="\t")
    WIDE.rename_axis("task").to_csv(tmp_path / "text.csv")  # the first column has text
    WIDE.to_parquet(tmp_path / "index.parquet")
    wide.to_parquet(tmp_path / "wide.parquet")
    for name in ("wide.csv", "unnamed.csv", "wide.tsv", "text.csv", "index.parquet", "wide.parquet"):
        assert same(read_table(tmp_path / name)), name
        assert same(read_table(str(tmp_path / name))), name
    for table in (WIDE, wide, WIDE.rename_axis("item"), WIDE.rename_axis("riddle"), WIDE.astype(bool)):
        assert same(read_table(table))
    LONG.to_csv(tmp_path / "long.csv", index=False)
    LONG.to_csv(tmp_path / "counted.csv")
    LONG.to_csv(tmp_path / "semicolons.csv", index=False, sep=";", encoding="utf-8-sig")
    LONG.to_parquet(tmp_path / "long.parquet")
    LONG.rename(columns={"arm": "Model Name", "item": "doc_id", "score": "correct"}).to_csv(tmp_path / "other.csv")
    for name in ("long.csv", "counted.csv", "semicolons.csv", "long.parquet", "other.csv"):
        assert same(read_table(tmp_path / name), costs=True), name
    assert same(read_table(LONG), costs=True)
    assert same(read_table(LONG.set_index(["arm", "item"])), costs=True)
    assert same(read_table({arm: dict(zip(ITEMS, row, strict=True)) for arm, row in zip(ARMS, SCORES, strict=True)}))
    assert same(read_table({arm: WIDE[arm] for arm in ARMS}))
    assert same(read_table(TABLE), costs=True)


def test_items_without_names_are_counted_and_cells_have_a_meaning(tmp_path):
    WIDE.to_csv(tmp_path / "wide.csv", index=False)
    by_row = read_table(tmp_path / "wide.csv")
    by_list = read_table({arm: row.tolist() for arm, row in zip(ARMS, SCORES, strict=True)})
    by_array = read_table(dict(zip(ARMS, SCORES, strict=True)))
    for table in (by_row, by_list, by_array):
        assert table.items == tuple(map(str, range(len(ITEMS))))
        assert np.array_equal(table.scores, SCORES)
    numbered = WIDE.set_axis(range(1, len(ITEMS) + 1)).rename_axis("riddle")  # names of an index are
    assert read_table(numbered).items == tuple(map(str, range(1, len(ITEMS) + 1)))
    (tmp_path / "t.csv").write_text("item,a,b\n1,true,FALSE\n2, 0.5 ,1e-1\n3,,0\n4,NA,nan\n5,n/a,None\n\n6,1,0\n")
    scores = read_table(tmp_path / "t.csv").scores
    np.testing.assert_equal(scores, [[1, 0.5, np.nan, np.nan, np.nan, 1], [0, 0.1, 0, np.nan, np.nan, 0]])


def test_costs_come_by_arm_by_item_or_with_the_scores(tmp_path):
    long = LONG[["arm", "item", "cost"]]
    long.sample(frac=1, random_state=1).to_csv(tmp_path / "long.csv", index=False)
    pd.DataFrame(COSTS.T, index=list(ITEMS), columns=list(ARMS)).iloc[::-1].to_csv(tmp_path / "wide.csv")
    by_arm = {"huge": 5, "small": 1, "large": 2, "not here": 9}
    pd.DataFrame({"Model": by_arm.keys(), "price": by_arm.values()}).to_csv(tmp_path / "prices.csv", index=False)
    assert same(read_table(WIDE, costs=tmp_path / "long.csv"), costs=True)
    assert same(read_table(WIDE, costs=str(tmp_path / "wide.csv")), costs=True)
    assert same(
        read_table(WIDE, costs={arm: dict(zip(ITEMS, COSTS[a], strict=True)) for a, arm in enumerate(ARMS)}), True
    )
    for costs in (by_arm, tmp_path / "prices.csv", pd.Series(by_arm)):
        found = read_table(LONG, costs=costs).costs  # those that are given win
        assert found.shape == SCORES.shape
        assert found[:, 7].tolist() == [1, 2, 5]
    (tmp_path / "prices.csv").write_text("arm,cost\nsmall,1\nlarge,2\nhuge,3\nsmall,1\n")
    with pytest.raises(InvalidInput, match="rows 2 and 5: arm 'small' appears twice"):
        read_table(WIDE, costs=tmp_path / "prices.csv")


REFUSED = {
    "item,a,b\nx,1,0\n\ny,1,good\n": r"row 4, column 'b': a score must be a number, true, false or empty, got 'good'.",
    "item,a,b\nx,1,1.5\n": "row 2, column 'b': a score must lie from 0 to 1, got 1.5. If scores have another range",
    "item,a,b\nx,1,1_0\n": "row 2, column 'b': a score must be a number",
    "qid,a,b\n1,1,0\n2,1,0\n": r"row 3, column 'qid': a score must lie from 0 to 1, got 2.*perhaps a column item",
    "item,a,b\nx,1\n": "row 2: it has 2 cells, but the first row has 3",
    "item,a,b\n": "has no rows",
    "item,a,b\nx,1,0\nx,1,0\n": "rows 2 and 3: item 'x' appears twice",
    "item,a,b\n,1,0\n": "row 2: the item has no name",
    "item,a,a\nx,1,0\n": "column 2 needs its own name, got 'a'",
    "item,a,score\nx,1,0\n": "is the column 'score' an arm",
    "arm,item,score\na,x,1\nb,x,0\na,x,1\n": "rows 2 and 4: arm 'a' appears twice on item 'x'",
    "arm,item,score\na,x,1\nb,x,\nb,y,often\n": "row 4, column 'score': a score must be a number",
    "arm,item,score\na,x,1\n,x,0\n": "row 3: the arm has no name",
    "arm,item,score,cost\na,x,1,1\nb,x,0,-1\n": "row 3, column 'cost': a cost must be 0 or more, and finite, got -1",
    "arm,item,score,cost\na,x,1,1\nb,x,0,\n": "arm 'b' has a score but no cost on item 'x'; evaluations like this: 1",
    "arm,item,score,cost\na,x,1,0\nb,x,0,0\n": "at least one cost must be more than 0",
    "arm,score\na,1\nb,0\n": "a column for the arm, 'arm', and one for the score, 'score', but none for the item",
    "model,system,item,score\na,b,x,1\n": "the columns 'model' and 'system' could both be the arm: call one",
    "item,a\nx,1\n": "needs at least 2 arms and 1 item, got 1 and 1",
    "item,a,b\nx,1,\ny,,0\n": "no item has a score of every arm: arm 'a' has none on 1 of 2 items",
}  # fmt: skip


@pytest.mark.parametrize("text", REFUSED, ids=lambda text: text.replace("\n", "|"))
def test_a_table_that_could_be_misread_is_refused_with_the_place(tmp_path, text):
    path = tmp_path / "scores.csv"
    path.write_text(text)
    with pytest.raises(InvalidInput, match=REFUSED[text]) as refused:
        cabai.replay(path)
    if "row" in REFUSED[text]:
        assert str(refused.value).startswith(str(path))


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"a": [1, 0], "b": [1]}, "arm 'a' has 2 scores and arm 'b' has 1: give mappings"),
        ({"a": [1, 0], "b": {"x": 1}}, "give the scores of all arms as lists, or of all as mappings"),
        ({"a": [1, "x"], "b": [1, 0]}, "arm 'a' on item '1': a score must be a number"),
        ({"a": 1, "b": 0}, "the scores of arm 'a' must be a list, or a mapping of items to scores, got 1"),
        (ScoreTable(("a", "b"), ("x",), np.array([[1.0], [2.0]])), "arm 'b' on item 'x': a score must lie from 0 to 1"),
        (WIDE.assign(item="q"), "rows q0 and q1: item 'q' appears twice"),
        (WIDE.assign(small=[[1]] * len(WIDE)), "row q0, column 'small': a score must be a number"),
        (pd.DataFrame(), "the DataFrame has no rows"),
        (WIDE.T.set_index(["q0", "q1"], append=True).T, "this DataFrame has several levels"),
        (5, "a table must be a path, a pandas DataFrame, a mapping of arms to scores or a ScoreTable, got a value of"),
        ("nowhere.csv", "cannot read nowhere.csv: No such file"),
    ],
    ids=str,
)
def test_values_of_python_that_are_no_table_are_refused(table, message):
    with pytest.raises(InvalidInput, match=message):
        cabai.replay(table)


def test_costs_that_are_missing_or_wrong_are_refused():
    by_item, missing = {arm: {"q0": 1} for arm in ARMS}, "arm 'small' has a score but no cost on item 'q1'"
    for costs, message in (
        ({"small": 1}, r"there is no cost for arm 'large' and 1 more: there are costs for small\."),
        ({"small": 1, "large": -1, "huge": 1}, "arm 'large': a cost must be 0 or more, and finite, got -1"),
        (dict.fromkeys(ARMS, 0), "at least one cost must be more than 0"),
        (by_item, f"{missing}; evaluations like this: 357"),
    ):
        with pytest.raises(InvalidInput, match=message):
            cabai.replay(WIDE, costs=costs)


def test_a_file_that_is_not_text_and_one_that_is_not_parquet_are_refused(tmp_path):
    (tmp_path / "x.csv").write_bytes(b"a,b\n\xff\xfe,1\n")
    with pytest.raises(InvalidInput, match=r"x.csv: it is not a text file in UTF-8"):
        cabai.replay(tmp_path / "x.csv")
    (tmp_path / "x.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(InvalidInput, match=r"cannot read .*x.parquet: "):
        cabai.replay(tmp_path / "x.parquet")
    (tmp_path / "x.parquet").write_text("only text")
    with pytest.raises(InvalidInput, match=r"x.parquet is not a Parquet file"):
        cabai.replay(tmp_path / "x.parquet")


def test_another_range_and_minimising(tmp_path):
    scaled = cabai.replay(10 - 5 * WIDE, costs=dict(zip(ARMS, (1, 2, 5), strict=True)), low=5, high=10,
                          direction="minimize", repeats=10)  # fmt: skip
    plain = cabai.replay(WIDE, costs=dict(zip(ARMS, (1, 2, 5), strict=True)), repeats=10)
    assert np.array_equal(scaled.pulls, plain.pulls)
    with pytest.raises(InvalidInput, match="low must be below high, got 1 and 1"):
        cabai.replay(WIDE, low=1)


def test_missing_scores_are_told_and_their_items_left_out():
    holes = WIDE.copy()
    holes.iloc[3, 0] = holes.iloc[4, 0] = holes.iloc[4, 1] = None
    words = r"2 of 120 items, on which not every arm has a score \(small on 2, large on 1\)"
    with pytest.warns(MissingScores, match=f"left out: {words}"):
        found = cabai.replay(holes, repeats=10)
    assert len(found.table.items) == 118
    assert found.to_dict()["missing"] == {"items": 2, "arms": {"small": 2, "large": 1}}
    assert f"Left out: {words[:13]}" in repr(found)
    with_all = cabai.replay(WIDE.drop(index=["q3", "q4"]), repeats=10)
    assert np.array_equal(with_all.pulls, found.pulls)
    assert with_all.to_dict()["missing"] == {"items": 0, "arms": {}}


def test_replay_races_the_table_that_was_read():
    found, direct = cabai.replay(LONG, repeats=30, seed=3), replay(TABLE, repeats=30, seed=3)
    assert np.array_equal(found.pulls, direct.pulls)
    assert np.array_equal(found.costs, direct.costs)
    fields = found.to_dict()
    promised = "arms items repeats delta epsilon full_cost mean_cost share share_quantiles same_winner within_epsilon"
    assert {*promised.split(), "decisions", "pulls", "missing"} <= set(fields)
    assert fields["share"] == pytest.approx(fields["mean_cost"] / COSTS.sum())
    assert fields["decisions"] == {"small": 0, "large": 0, "huge": 30}
    assert fields["pulls"]["small"] == pytest.approx(found.pulls[:, 0].mean())


def test_csv_needs_no_package_but_those_that_cabai_needs(tmp_path, monkeypatch):
    WIDE.to_csv(tmp_path / "scores.csv")
    WIDE.to_parquet(tmp_path / "scores.parquet")
    for name in ("pandas", "pyarrow", "pyarrow.parquet"):
        monkeypatch.setitem(sys.modules, name, None)
    assert same(read_table(tmp_path / "scores.csv"))
    with pytest.raises(ModuleNotFoundError, match=r"this needs pyarrow.*pip install \"\.\[frames\]\""):
        read_table(tmp_path / "scores.parquet")


def test_progress_counts_the_races_and_of_many_arms_the_best_are_printed():
    seen: list[int] = []
    draw = np.random.default_rng(1).random((25, 40))
    scores = (draw < np.linspace(0.1, 0.9, 25)[:, None]).astype(float)
    found = cabai.replay({f"m{a}": row for a, row in enumerate(scores)}, repeats=3, progress=seen.append)
    lines = repr(found).splitlines()
    assert (seen, seen[-1]) == (sorted(seen), 3)
    assert len(lines) == 2 + 20 + 1 + 2
    assert lines[22].startswith("and 5 more arms: evaluated ")


def test_what_is_printed():
    found = cabai.replay(LONG, repeats=30, epsilon=0.1)
    heading, header, first, *_, paid, winner = repr(found).splitlines()
    assert heading == "paired race, maximize, delta 0.05, epsilon 0.1, 3 arms on 120 items, 30 repeats"
    assert header.split() == ["arm", "mean", "score", "evaluated", "chosen"]
    evaluated = 100 * found.pulls[:, 2].mean() / 120
    assert first.split() == ["huge", f"{SCORES[2].mean():.4g}", f"{evaluated:.3g}", "%", "30"]
    low, high = np.quantile(found.costs / COSTS.sum(), [0.05, 0.95])
    mean = found.costs.mean() / COSTS.sum()
    paid_of, nine = f"Paid: {100 * mean:.3g} % of the full cost", f"{100 * low:.3g} % to {100 * high:.3g} %"
    assert paid == f"{paid_of} of 960 on average, {nine} in nine of ten repeats."
    assert winner == "Winner: the same as with all scores in 30 of 30 repeats; within 0.1 of the best in 30."


@pytest.fixture
def files(tmp_path):
    WIDE.to_csv(tmp_path / "scores.csv")
    (tmp_path / "prices.csv").write_text("arm,cost\nsmall,1\nlarge,2\nhuge,5\n")
    return tmp_path


def test_the_shell_prints_what_python_does_and_takes_every_option(files):
    options = ["--costs", "prices.csv", "--repeats", "20", "--seed", "4", "--workers", "1"]
    done = here("replay", "scores.csv", *options, cwd=files)
    found = cabai.replay(WIDE, costs={"small": 1, "large": 2, "huge": 5}, repeats=20, seed=4)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{found}\n", "")
    as_json = json.loads(here("replay", "scores.csv", *options, "--json", cwd=files).stdout)
    assert as_json == found.to_dict()
    options = "--delta 0.1 --epsilon 0.05 --direction minimize --race paired --low -1 --high 2 --repeats 5"
    done = here("replay", "scores.csv", *options.split(), "--plot", "paid.svg", cwd=files)
    assert done.stdout.startswith("paired race, minimize, delta 0.1, epsilon 0.05, 3 arms on 120 items, 5 repeats\n")
    assert done.stdout.endswith("written: paid.svg\n")
    picture = (files / "paid.svg").read_text()
    assert all(words in picture for words in ("% of the full cost paid", "% of the items evaluated, by arm", "huge"))
    for arguments, message in (
        (["nowhere.csv"], "cannot read nowhere.csv: No such file or directory."),
        (["scores.csv", "--race", "champion", "--epsilon", "0.1"], "race 'champion' looks for the best arm itself"),
        (["scores.csv", "--repeats", "0"], "repeats must be a whole number of at least 1, got 0."),
        (["scores.csv", "--low", "0.5"], "scores.csv, row 2, column 'small': a score must lie from 0.5 to 1, got 0."),
    ):
        done = here("replay", *arguments, cwd=files)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        assert done.stderr.startswith(f"cabai: {message}")
