"""How commands get their options: from the table of settings, and those that several commands share."""

from __future__ import annotations

import inspect
import json
import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.models import ArgumentInfo, OptionInfo

from cabai.instance import Instance
from cabai.settings import REQUIRED, STORAGE, Setting, settings_for
from cabai.support.files import file_to_write
from cabai.support.registry import split_outside_brackets
from cabai.support.validation import InvalidInput, shown

JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")]
NameArgument = Annotated[str, typer.Argument(help=settings_for("study")["name"].sentence)]
StorageOption = Annotated[
    str, typer.Option("--storage", envvar="CABAI_STORAGE", help=settings_for("study")["storage"].sentence)
]
Function = Callable[..., tuple[Any, ...] | None]
OF_STUDY = {"name": (NameArgument, REQUIRED), "storage": (StorageOption, STORAGE)}


def takes(
    *places: str, leave_out: Iterable[str] = (), optional: Iterable[str] = (), study: bool = False
) -> Callable[[Function], Function]:
    """Make a function a command: its `**settings` are those of some places, by the table.

    What it returns is printed: with --json the first part, as JSON, else the second, as text; a third is the exit code.
    With `study`, it is given the study that a name and a storage find.
    """
    rows: dict[str, tuple[Setting, Any]] = {}
    for place in places:
        for name, row in settings_for(place).items():
            if row.kind != "object" and name not in (*leave_out, *OF_STUDY):
                rows.setdefault(name, (row, None if name in optional else row.default_in(place)))

    def make(function: Function) -> Function:
        own = inspect.signature(function).parameters
        known = {name: parameter(name, *each) for name, each in OF_STUDY.items() if name in own or study}
        known["as_json"] = parameter("as_json", JsonOption, False)
        for name, each in own.items():
            if each.kind is not each.VAR_KEYWORD and name not in rows and (name != "study" or not study):
                known.setdefault(name, evaluated(each, function))
        made = [option_of(row, default) for row, default in rows.values()]
        first = [each for each in known.values() if is_argument(each)]
        last = [known[name] for name in ("storage", "as_json") if name in known]
        ordered = [*first, *made, *(each for each in known.values() if each not in (*first, *last)), *last]

        def run(**given: Any) -> None:
            as_json = given["as_json"] if "as_json" in own else given.pop("as_json")
            for name, (row, _) in rows.items():
                given[name] = read(row, given[name])
            if study:
                from cabai.study import load_study

                given["study"] = load_study(given.pop("name"), storage=given.pop("storage"))
            answer = function(**given)
            if answer is not None and (as_json or answer[1] != ""):
                typer.echo(json.dumps(answer[0], allow_nan=False) if as_json else answer[1])
            if answer is not None and len(answer) > 2:
                raise typer.Exit(answer[2])

        run.__name__, run.__doc__ = function.__name__, function.__doc__
        run.__signature__ = inspect.Signature(ordered)  # type: ignore[attr-defined]
        run.__annotations__ = {each.name: each.annotation for each in ordered}
        return run

    return make


def parameter(name: str, kind: Any, default: Any) -> inspect.Parameter:
    value = inspect.Parameter.empty if default is REQUIRED else default
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=value, annotation=kind)


def option(help: str, default: Any = None, *, names: tuple[str, ...] = (), **more: Any) -> Any:
    """An option of a command alone, as the default of its parameter; it is named after it."""
    return typer.Option(default, *names, help=help, **more)


def argument(help: str, default: Any = REQUIRED) -> Any:
    """A positional argument of a command, as the default of its parameter."""
    return typer.Argument(default, help=help)


def file_option(help: str, *kinds: str, default: str | None = None) -> Any:
    """An option that names a file to write. One that cannot be written, or does not end in one of these kinds, is
    refused before any work."""

    def check(param: typer.CallbackParam, value: str | None) -> str | None:
        if value is not None:
            if kinds and Path(value).suffix.lstrip(".").lower() not in kinds:
                allowed = " or ".join(filter(None, [", ".join(f".{kind}" for kind in kinds[:-1]), f".{kinds[-1]}"]))
                raise InvalidInput(f"{param.opts[0]} must end in {allowed}, got {value!r}.")
            file_to_write(value)
        return value

    return option(help, default, callback=check)


def evaluated(given: inspect.Parameter, function: Function) -> inspect.Parameter:
    """A parameter that a command declares itself."""
    own = given.default
    if isinstance(own, OptionInfo) and not own.param_decls:
        own.param_decls = (option_name(given.name),)
    return parameter(given.name, eval(given.annotation, function.__globals__), own)


def is_argument(given: inspect.Parameter) -> bool:
    return any(
        isinstance(each, ArgumentInfo) for each in (given.default, *getattr(given.annotation, "__metadata__", ()))
    )


def option_name(setting: str) -> str:
    return f"--{setting.replace('_', '-')}"


def option_of(row: Setting, default: Any) -> inspect.Parameter:
    """The option of a setting. What is not one number or word is given as text, and read afterwards."""
    kind = {"number": float, "whole": int, "flag": bool}.get(row.kind, str)
    written = option_name(row.name)
    if default is True:
        written = f"{written}/--no-{written[2:]}"
    if isinstance(default, tuple):
        default = ",".join(default)
    if default is False and kind is str:
        default = None
    typed: Any = kind | None if default is None else kind
    return parameter(row.name, Annotated[typed, typer.Option(written, help=row.sentence)], default)


def read(row: Setting, given: Any) -> Any:
    """The value of an option."""
    if given is None:
        return row.default if row.default is False else None
    if row.choices:
        row.checked(given)
    return READERS[row.kind](given, option_name(row.name)) if row.kind in READERS else given


def read_names(text: str, option: str = "") -> list[str]:
    """Read names separated by commas, with optional parameters in brackets: co, ctas(exploration=1, tracking=ratio)."""
    return [part.strip() for part in split_outside_brackets(text)]


def read_numbers(text: str, option: str) -> list[float]:
    """Read numbers separated by commas. Infinities and NaN are refused later."""
    parts = [part.strip() for part in text.split(",")] if text.strip() else []
    try:
        return [float(part) for part in parts]
    except ValueError:
        raise InvalidInput(f"{option} must be numbers separated by commas, got {text!r}.") from None


def read_json(text: str, option: str, **how: Any) -> Any:
    try:
        return json.loads(text, **how)
    except (ValueError, RecursionError) as error:  # not JSON, or more digits or brackets than Python reads
        raise InvalidInput(f"{option} must be JSON, got {shown(text)}: {error}.") from None


def read_score(text: str, option: str) -> str | float:
    """A score, or a word such as worst."""
    try:
        return float(text)
    except ValueError:
        return text


READERS: dict[str, Callable[[str, str], Any]] = {
    "names": read_names, "numbers": read_numbers, "json": read_json, "any json": read_json, "score": read_score,
    "items": lambda text, option: int(text) if text.strip().isdigit() else text,  # their number, or a file of them
}  # fmt: skip


def read_instance(settings: dict[str, Any]) -> Instance:
    """The instance that the options describe; its options are taken out of the settings."""
    given = {name: settings.pop(name) for name in settings_for("instance") if name in settings}
    spreads = given.get("sd")
    if spreads is not None and len(spreads) == 1:
        given["sd"] = spreads[0]
    return Instance(**given)


def read_instances(file: str) -> dict[str, Instance]:
    """The instances in a TOML file, a table each."""
    try:
        tables = tomllib.loads(Path(file).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        why = getattr(error, "strerror", None) or error
        raise InvalidInput(f"cannot read the instances in {file}: {why}.") from None
    if not tables:
        raise InvalidInput(f"{file} has no instances: write a table of each, with family, means and costs.")
    found, known = {}, settings_for("instance")
    for name, given in tables.items():
        if not isinstance(given, dict) or not {"family", "means", "costs"} <= set(given) <= set(known):
            raise InvalidInput(
                f"[{name}] in {file} must be a table with family, means and costs, and may have "
                f"{', '.join(each for each in known if each not in ('family', 'means', 'costs'))}; got {shown(given)}."
            )
        try:
            found[name] = Instance(**given)
        except InvalidInput as error:
            raise InvalidInput(f"[{name}] in {file}: {error}") from None
    return found
