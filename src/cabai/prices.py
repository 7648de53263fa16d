"""The cost of a model call in dollars, computed from its tokens, so that a test can return its cost.

Prices come from the package genai-prices, without network access. Your own prices take precedence: a TOML file with
dollars per million tokens,

    [my-model]
    input = 0.5
    output = 1.5

given as `prices`, or in the environment variable CABAI_PRICES.
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


def cost(
    model: str, *, input_tokens: int, output_tokens: int, prices: str | Path | Mapping[str, Any] | None = None
) -> float:
    """The cost of a model call, in dollars.

    Prices come from the package genai-prices (extra `prices`), without using the network. `prices` are your own, which
    take precedence: a TOML file or a mapping with dollars per million tokens of input and of output, by model. The
    environment variable CABAI_PRICES can name the file instead.

    >>> own = {"my-model": {"input": 0.5, "output": 1.5}}
    >>> cost("my-model", input_tokens=1000, output_tokens=200, prices=own)
    0.0008
    """
    if not isinstance(model, str) or not model:
        raise InvalidInput(f"a model must be given by its name, got {shown(model)}.")
    tokens = whole(input_tokens, "input_tokens", 0), whole(output_tokens, "output_tokens", 0)
    own = own_prices(prices)
    if model in own:
        price = own[model]
        return (tokens[0] * price[0] + tokens[1] * price[1]) / MILLION
    return public_cost(model, tokens, own)


def own_prices(given: str | Path | Mapping[str, Any] | None) -> dict[str, tuple[float, float]]:
    """The user's prices for input and output, by model."""
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
def read(path: str, changed: int, size: int) -> dict[str, tuple[float, float]]:
    """Read a file of prices; it is read again after it changes."""
    import tomllib

    try:
        found = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise InvalidInput(f"the prices in {path} are not TOML: {error}.") from error
    return checked(found, path)


def checked(tables: Mapping[str, Any], source: str, above: str = "") -> dict[str, tuple[float, float]]:
    """Check prices by model. A name with a dot and without quotes is a nested table in TOML; it is read as one name."""
    found: dict[str, tuple[float, float]] = {}
    for key, value in tables.items():
        name = f"{above}{key}"
        if not isinstance(value, Mapping):
            raise InvalidInput(
                f'{source}: {name!r} is not a model with its prices. Write [{name}] or ["{name}"], and below it '
                "input = and output =, in dollars per million tokens."
            )
        own = {part: value[part] for part in value if not isinstance(value[part], Mapping)}
        if own:
            if set(own) != {"input", "output"}:
                raise InvalidInput(f"{source}: model {name!r} needs the prices input and output, got {', '.join(own)}.")
            prices = [amount(own[part], f"{source}: the price {part} of {name!r}") for part in ("input", "output")]
            if min(prices) < 0:
                raise InvalidInput(f"{source}: the prices of {name!r} must not be negative.")
            found[name] = prices[0], prices[1]
        inner = {part: value[part] for part in value if part not in own}
        if not own and not inner:
            raise InvalidInput(f"{source}: model {name!r} needs the prices input and output.")
        found |= checked(inner, source, f"{name}.")
    return found


def public_cost(model: str, tokens: tuple[int, int], own: Mapping[str, Any]) -> float:
    """The cost by the prices of genai-prices; `provider/model` works too."""
    from difflib import get_close_matches

    package = optional("genai_prices")
    usage = package.Usage(input_tokens=tokens[0], output_tokens=tokens[1])
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


def check_priced(model: str, price: Any, tokens: tuple[int, int]) -> None:
    """Refuse models listed without prices: this does not mean that they are free."""
    for kind, count in zip(("input", "output"), tokens, strict=True):
        if count and getattr(price, f"{kind}_mtok", None) is None:
            raise InvalidInput(
                f"genai-prices has no price for {kind} tokens of model {shown(model)}. {give_own(model)}"
            )


def give_own(model: str) -> str:
    return (
        f'Give your own: a TOML file with ["{model}"], input = and output = in dollars per million tokens, as prices= '
        "or in the environment variable CABAI_PRICES."
    )
