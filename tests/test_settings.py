"""The table of settings: signatures, files, the shell, HTTP and the docs take what it lists, with its defaults."""

from __future__ import annotations

import inspect

import pytest

import cabai
from cabai.datasets import read_table
from cabai.settings import PLACES, REQUIRED, SETTINGS, defaults_for, settings_for

CALLS = {
    "study": cabai.create_study, "evaluate": cabai.evaluate, "run": cabai.Study.run, "amend": cabai.Study.amend,
    "accept": cabai.Study.accept, "drop": cabai.Study.drop, "add_arm": cabai.Study.add_arm,
    "plan": cabai.plan, "simulate": cabai.simulate, "compare": cabai.compare, "calibrate": cabai.calibrate,
    "replay": cabai.replay, "scores": read_table, "instance": cabai.Instance,
}  # fmt: skip
# What is worked on, and what only Python can say.
NOT_SETTINGS = {"self", "instance", "source", "table", "test", "progress", "page", "grid", "variance"}


@pytest.mark.parametrize("place", CALLS)
def test_a_signature_has_the_names_and_defaults_of_the_table(place):
    given = inspect.signature(CALLS[place]).parameters
    written = {
        name: REQUIRED if each.default is each.empty else each.default
        for name, each in given.items()
        if name not in NOT_SETTINGS
    }
    assert written == {name: row.default_in(place) for name, row in settings_for(place).items()}


def test_every_row_says_what_it_is_and_its_default_passes_its_own_check():
    for row in SETTINGS:
        assert set(row.where.split()) <= set(PLACES)
        assert row.sentence.endswith(".")
        assert set(row.other_defaults) <= set(row.where.split())
    pairs = [(place, row.name) for row in SETTINGS for place in row.where.split()]
    assert len(set(pairs)) == len(pairs)
    for place in PLACES:
        for name, default in defaults_for(place).items():
            if default is not None:
                assert settings_for(place)[name].checked(default) == default, (place, name)


def test_http_takes_what_the_table_lists_and_describes_it():
    from cabai.server.requests import Amend, Create

    for model, place in ((Create, "http"), (Amend, "amend")):
        fields = model.model_json_schema()["properties"]
        assert list(fields) == list(settings_for(place))
        assert {name: about["description"] for name, about in fields.items()} == {
            name: row.sentence for name, row in settings_for(place).items()
        }
        made = model(name="a", arms=["a", "b"]) if model is Create else model()
        assert made.model_dump(include=set(defaults_for(place))) == defaults_for(place)
    assert Create.model_json_schema()["properties"]["goal"]["enum"] == ["best", "cheapest"]
    with pytest.raises(ValueError, match=r"unknown field 'max_costs'; did you mean max_cost\?"):
        Create(name="a", arms=["a", "b"], max_costs=3)


COMMANDS = {
    "simulate": ("instance", "simulate"), "compare": ("instance", "compare"), "calibrate": ("calibrate",),
    "replay": ("replay", "scores"), "plan": ("plan",), "create": ("study",), "amend": ("amend",),
}  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_takes_what_its_call_takes_and_says_what_the_table_says(command):
    from typer.main import get_command

    from cabai.cli import app

    found = get_command(app).commands
    options = {each.name: each for each in (found | found["study"].commands)[command].params}
    for place in COMMANDS[command]:
        for name, row in settings_for(place).items():
            if row.kind != "object" and name not in ("name", "storage") and (name, place) != ("arms", "plan"):
                assert options[name].opts[0] == f"--{name.replace('_', '-')}"
                assert options[name].help == row.sentence or (name, command) == ("costs", "replay")
