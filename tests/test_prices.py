"""What a call of a model costs: public prices, and the user's own, which win."""

from __future__ import annotations

import socket
import sys

import pytest

from cabai.prices import cost
from cabai.support.validation import InvalidInput

OWN = """
[gpt-4o]
input = 100
output = 200.0

[own-4.1]
input = 1
output = 2

["org/model:free"]
input = 0
output = 0
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    monkeypatch.delenv("CABAI_PRICES", raising=False)
    path = tmp_path / "prices.toml"
    path.write_text(OWN)
    return path


@pytest.fixture
def offline(monkeypatch):
    monkeypatch.delenv("CABAI_PRICES", raising=False)
    monkeypatch.setattr(socket, "socket", lambda *_, **__: pytest.fail("the network was asked"))


def test_public_prices_need_no_network_and_cached_tokens_have_their_own(offline, own):
    """2.50 dollars per million tokens of input, 10 of output: OpenAI's price of gpt-4o since October 2024. 1.25 dollars
    per million tokens of gpt-4o that are read from a cache: half the price of others. gpt-4 has no such price."""
    given = {"m": {"input": 1, "output": 2, "cache_read": 0.1, "cache_write": 1.25}}
    for model, prices, tokens, expected in (
        ("gpt-4o", None, (10**6, 0, 0, 0), 2.5), ("gpt-4o", None, (1000, 100, 0, 0), 0.0025 + 0.001),
        ("openai/gpt-4o", None, (1000, 100, 0, 0), 0.0035), ("gpt-4o", None, (0, 0, 0, 0), 0),
        ("gpt-4o", None, (0, 0, 10**6, 0), 1.25), ("gpt-4o", None, (10**6, 0, 10**6, 0), 3.75),
        ("own-4.1", own, (1, 1, 10, 100), 113e-6),  # at the price of input
        ("m", given, (1, 1, 10, 100), (1 + 2 + 1 + 125) * 1e-6),
        ("gpt-4", None, (0, 0, 10**6, 0), cost("gpt-4", input_tokens=10**6, output_tokens=0)),
    ):  # fmt: skip
        kinds = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")
        assert cost(model, **dict(zip(kinds, tokens, strict=True)), prices=prices) == pytest.approx(expected)


def test_own_prices_win_over_public_ones_and_a_changed_file_is_read_again(own, monkeypatch):
    assert cost("gpt-4o", input_tokens=10, output_tokens=1, prices=own) == pytest.approx(1200e-6)
    assert cost("own-4.1", input_tokens=3, output_tokens=2, prices=str(own)) == pytest.approx(7e-6)
    assert cost("org/model:free", input_tokens=3, output_tokens=2, prices=own) == 0
    assert cost("gpt-4o-mini", input_tokens=1_000_000, output_tokens=0, prices=own) == pytest.approx(0.15)
    monkeypatch.setenv("CABAI_PRICES", str(own))
    assert cost("own-4.1", input_tokens=1_000_000, output_tokens=0) == 1
    given = {"own-4.1": {"input": 5, "output": 5}}
    assert cost("own-4.1", input_tokens=1_000_000, output_tokens=0, prices=given) == 5
    assert cost("own-4.1", input_tokens=1_000_000, output_tokens=0, prices=own) == 1
    own.write_text('["own-4.1"]\ninput = 123.5\noutput = 0')
    assert cost("own-4.1", input_tokens=1_000_000, output_tokens=0, prices=own) == 123.5


def test_a_model_without_a_price_is_not_free_and_without_the_package_own_prices_still_do(monkeypatch, own):
    import genai_prices

    listed = genai_prices.calc_price(genai_prices.Usage(input_tokens=1), "gpt-4o")
    listed.model_price = genai_prices.types.ModelPrice()
    monkeypatch.setattr(genai_prices, "calc_price", lambda *_, **__: listed)
    with pytest.raises(InvalidInput, match="genai-prices has no price for input tokens of model 'gpt-4o'"):
        cost("gpt-4o", input_tokens=1, output_tokens=1)
    monkeypatch.setitem(sys.modules, "genai_prices", None)
    assert cost("own-4.1", input_tokens=1_000_000, output_tokens=0, prices=own) == 1
    with pytest.raises(ModuleNotFoundError, match=r"this needs genai_prices.*pip install \"\.\[prices\]\""):
        cost("gpt-4o-mini", input_tokens=1, output_tokens=1, prices=own)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[a\n", r"prices.toml are not TOML: "),
        ("a = 1", "'a' is not a model with its prices"),
        ("[a]\ninput = 1", "model 'a' needs the prices input and output, got input"),
        ("[a]\ninput = 1\noutput = 2\ncached = 3", "got input, output, cached"),
        ("[a]\ninput = -1\noutput = 2", "the prices of 'a' must not be negative"),
        ('[a]\ninput = "1"\noutput = 2', "the price input of 'a' must be a finite number, got '1'"),
        ("[a]\ninput = true\noutput = 2", "the price input of 'a' must be a number, got True"),
        ("[a]", "model 'a' needs the prices input and output"),
    ],
)
def test_a_file_that_is_no_price_table_is_refused(own, text, message):
    own.write_text(text)
    with pytest.raises(InvalidInput, match=message):
        cost("a", input_tokens=1, output_tokens=1, prices=own)


def test_what_is_no_call_and_an_unknown_model_are_refused(own):
    """With models that are close."""
    for model, tokens, prices, message in (
        ("a", 1, "nowhere.toml", "cannot read the prices in nowhere.toml: No such file"),
        ("a", -1, own, "input_tokens must be a whole number of at least 0, got -1"),
        (5, 1, None, "a model must be given by its name, got 5"),
        ("gpt-4oo", 1, None, r"price of model 'gpt-4oo' is not known. Did you mean gpt-4o or .*CABAI_PRICES"),
        ("own-4.2", 1, own, r"'own-4.2' is not known. Did you mean own-4.1"),
        ("zzz/qqq", 1, None, r"'zzz/qqq' is not known. Give your own"),
    ):
        with pytest.raises(InvalidInput, match=message):
            cost(model, input_tokens=tokens, output_tokens=1, prices=prices)
