"""The cost of a model call in dollars, computed from its tokens, so that a test can return its cost.

Your own prices are a TOML file with dollars per million tokens:

    [my-model]
    input = 0.5
    output = 1.5
    cache_read = 0.05  # optional, as is cache_write: what is not given costs as much as input
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from cabai.support.validation import InvalidInput, amount, optional, shown, whole

__all__ = ["cost"]

MILLION = 1e6
KINDS = ("input", "output", "cache_read", "cache_write")


def cost(
    model: str,
    *,
    input_tokens: int,
    output_tokens: int,
    cache_read_tokens: int = 0,
    cache_write_tokens: int = 0,
    prices: str | Path | Mapping[str, Any] | None = None,
) -> float:
    """The cost of a model call, in dollars.

    `input_tokens` are those charged at the full rate, without those read from a cache or written to it.

    Prices come from the package genai-prices (extra `prices`), without using the network. `prices` are your own, which
    take precedence: a TOML file or a mapping with dollars per million tokens of input and of output, by model. The
    environment variable CABAI_PRICES can name the file instead.

    >>> own = {"my-model": {"input": 0.5, "output": 1.5}}
    >>> cost("my-model", input_tokens=1000, output_tokens=200, prices=own)
    0.0008
    """
    if not isinstance(model, str) or not model:
        raise InvalidInput(f"a model must be given by its name, got {shown(model)}.")
    given = (input_tokens, output_tokens, cache_read_tokens, cache_write_tokens)
    tokens = {kind: whole(count, f"{kind}_tokens", 0) for kind, count in zip(KINDS, given, strict=True)}
    own = own_prices(prices)
    if model in own:
        return sum(tokens[kind] * own[model][kind] for kind in KINDS) / MILLION
    return public_cost(model, tokens, own)


def usage_cost(model: str, usage: Mapping[str, Any], prices: str | Path | Mapping[str, Any] | None = None) -> float:
    """What Inspect says that a model has cost in a sample, or else what its tokens cost."""
    if usage.get("total_cost") is not None:
        return float(usage["total_cost"])
    return cost(
        model, input_tokens=usage.get("input_tokens", 0), output_tokens=usage.get("output_tokens", 0),
        cache_read_tokens=usage.get("input_tokens_cache_read") or 0,
        cache_write_tokens=usage.get("input_tokens_cache_write") or 0, prices=prices,
    )  # fmt: skip


def own_prices(given: str | Path | Mapping[str, Any] | None) -> dict[str, dict[str, float]]:
    if isinstance(given, Mapping):
        return checked(given, "prices")
    path = os.environ.get("CABAI_PRICES") if given is None else str(given)
    if not path:
        return {}
    try:
        state = os.stat(path)
        return read(path, state.st_mtime_ns, state.st_size)
    except OSError as error:
        raise InvalidInput(f"cannot read the prices in {path}: {error.strerror or error}.") from error


@lru_cache(maxsize=8)
def read(path: str, changed: int, size: int) -> dict[str, dict[str, float]]:
    """Read a file of prices; it is read again after it changes."""
    import tomllib

    try:
        found = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise InvalidInput(f"the prices in {path} are not TOML: {error}.") from error
    return checked(found, path)


def checked(tables: Mapping[str, Any], source: str, above: str = "") -> dict[str, dict[str, float]]:
    """Check prices by model. A name with a dot and without quotes is a nested table in TOML; it is read as one name."""
    found: dict[str, dict[str, float]] = {}
    for key, value in tables.items():
        name = f"{above}{key}"
        if not isinstance(value, Mapping):
            raise InvalidInput(
                f'{source}: {name!r} is not a model with its prices. Write [{name}] or ["{name}"], and below it '
                "input = and output =, in dollars per million tokens."
            )
        own = {part: value[part] for part in value if not isinstance(value[part], Mapping)}
        if own:
            if not {"input", "output"} <= set(own) <= set(KINDS):
                raise InvalidInput(
                    f"{source}: model {name!r} needs the prices input and output, got {', '.join(own)}. (It may also "
                    "have cache_read and cache_write.)"
                )
            prices = {part: amount(own[part], f"{source}: the price {part} of {name!r}") for part in own}
            if min(prices.values()) < 0:
                raise InvalidInput(f"{source}: the prices of {name!r} must not be negative.")
            found[name] = dict.fromkeys(KINDS, prices["input"]) | prices
        inner = {part: value[part] for part in value if part not in own}
        if not own and not inner:
            raise InvalidInput(f"{source}: model {name!r} needs the prices input and output.")
        found |= checked(inner, source, f"{name}.")
    return found


def public_cost(model: str, tokens: Mapping[str, int], own: Mapping[str, Any]) -> float:
    """The cost by the prices of genai-prices; `provider/model` works too."""
    from difflib import get_close_matches

    package = optional("genai_prices")
    cached = {f"{kind}_tokens": tokens[kind] for kind in KINDS[2:] if tokens[kind]}
    all_input = tokens["input"] + sum(cached.values())
    usage = package.Usage(input_tokens=all_input, output_tokens=tokens["output"], **cached)
    provider, _, name = model.partition("/")
    for reference, options in ((model, {}), (name, {"provider_id": provider})):
        if reference:
            with suppress(LookupError):
                found = package.calc_price(usage, reference, **options)
                check_priced(model, found.model_price, tokens)
                return float(found.total_price)
    companies = optional("genai_prices.data_snapshot").get_snapshot().providers
    known = list(dict.fromkeys([*own, *(each.id for company in companies for each in company.models)]))
    close = get_close_matches(model, known, 3) or get_close_matches(name, known, 3)
    advice = f"Did you mean {' or '.join(close)}? " if close else ""
    raise InvalidInput(f"the price of model {shown(model)} is not known. {advice}{give_own(model)}")


def check_priced(model: str, price: Any, tokens: Mapping[str, int]) -> None:
    """Refuse models listed without prices: this does not mean that they are free. What is cached costs as much as other
    input where it has no price of its own."""
    for kind in KINDS[:2]:
        if tokens[kind] and getattr(price, f"{kind}_mtok", None) is None:
            raise InvalidInput(
                f"genai-prices has no price for {kind} tokens of model {shown(model)}. {give_own(model)}"
            )


def give_own(model: str) -> str:
    return (
        f'Give your own: a TOML file with ["{model}"], input = and output = in dollars per million tokens, as prices= '
        "or in the environment variable CABAI_PRICES."
    )
