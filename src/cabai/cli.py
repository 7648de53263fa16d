"""The shell: `cabai bound`, and what later rooms add. Every command takes --json; every error is one line on stderr."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any, NoReturn

import typer

import cabai
from cabai.checks import InvalidInput
from cabai.families import FAMILIES
from cabai.instance import COST_MODELS, Instance

app = typer.Typer(
    help="Find the best of K options, wrong with probability at most delta, for the least money.",
    invoke_without_command=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

FamilyOption = Annotated[
    str, typer.Option("--family", help=f"What a reward is: {', '.join(FAMILIES.names)}. A gaussian takes its variance: "
                      "gaussian(variance=4).")
]
MeansOption = Annotated[str, typer.Option("--means", help="Each arm's mean reward, separated by commas: 1.5,1,0.5")]
CostsOption = Annotated[str, typer.Option("--costs", help="Each arm's mean cost, separated by commas: 1,0.1,0.01")]
NamesOption = Annotated[str | None, typer.Option("--names", help="The arms' names, separated by commas.")]
CostModelOption = Annotated[
    str, typer.Option("--cost-model", help=f"How a pull's cost is drawn around its mean: {', '.join(COST_MODELS)}.")
]
DeltaOption = Annotated[float, typer.Option("--delta", help="The probability of a wrong decision that is allowed.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")]


def version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"cabai {cabai.__version__}")
        raise typer.Exit()


@app.callback()
def teach(
    context: typer.Context,
    show_version: Annotated[bool, typer.Option("--version", callback=version, is_eager=True, help="Say which version this is.")] = False,
) -> None:
    """Find the best of K options, wrong with probability at most delta, for the least money.

    An arm is an option, a pull is one trial of it; each pull returns a reward and costs something.
    """
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command()
def bound(
    family: FamilyOption,
    means: MeansOption,
    costs: CostsOption,
    delta: DeltaOption = 0.05,
    names: NamesOption = None,
    as_json: JsonOption = False,
) -> None:
    """The least any policy with a guarantee must pay on a known instance, and how it would divide its money.

    Example: cabai bound --family gaussian --means 1.5,1,0.5 --costs 1,0.1,0.01 --delta 1e-6
    """
    instance = read_instance(family, means, costs, names)
    result = cabai.bound(instance)
    floor = result.cost(delta)
    if as_json:
        show_json({
            "hardness": result.hardness,
            "cost_shares": result.cost_shares.tolist(),
            "pull_shares": result.pull_shares.tolist(),
            "lower_bound": floor,
            "delta": delta,
        })
        return
    show_table(
        ["arm", "mean", "cost", "cost share", "pull share"],
        [
            [name, f"{instance.means[a]:.6g}", f"{instance.costs[a]:.6g}", f"{result.cost_shares[a]:.4f}",
             f"{result.pull_shares[a]:.4f}"]
            for a, name in enumerate(instance.names)
        ],
    )
    typer.echo(f"best arm: {instance.best_name}   hardness T*: {result.hardness:.6g}")
    typer.echo(f"mean cost of any policy wrong with probability at most {delta:g}: at least {floor:.6g}")


def read_instance(family: str, means: str, costs: str, names: str | None = None, cost_model: str = "fixed") -> Instance:
    """The instance that the options describe."""
    given_names = None if names is None else [name.strip() for name in names.split(",")]
    return Instance(
        family, read_numbers(means, "--means"), read_numbers(costs, "--costs"), names=given_names, cost_model=cost_model
    )


def read_numbers(text: str, option: str) -> list[float]:
    """Numbers separated by commas; what is not a number is named, and infinities and NaN are refused later by name."""
    parts = [part.strip() for part in text.split(",")] if text.strip() else []
    try:
        return [float(part) for part in parts]
    except ValueError:
        raise InvalidInput(f"{option} must be numbers separated by commas, got {text!r}.") from None


def show_json(value: Any) -> None:
    typer.echo(json.dumps(value, allow_nan=False))


def show_table(header: list[str], rows: list[list[str]]) -> None:
    """Columns side by side, numbers to the right."""
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    for row in [header, *rows]:
        cells = [cell.ljust(width) if i == 0 else cell.rjust(width) for i, (cell, width) in enumerate(zip(row, widths, strict=True))]
        typer.echo("  ".join(cells).rstrip())


def fail(message: str, code: int) -> NoReturn:
    line = " ".join(message.split())
    typer.echo(json.dumps({"error": line}) if "--json" in sys.argv else f"cabai: {line}", err=True)
    sys.exit(code)


def main() -> None:
    """Run the command line: 0 when all went well, 2 for bad input, 130 after Ctrl-C, 1 for what should not happen."""
    usage_error = typer.BadParameter.__mro__[2]  # what Typer raises for a wrong command line
    try:
        sys.exit(app(standalone_mode=False))
    except InvalidInput as error:
        fail(str(error), 2)
    except usage_error as error:
        fail(error.format_message(), 2)  # type: ignore[attr-defined]
    except (KeyboardInterrupt, typer.Abort):
        fail("stopped.", 130)


if __name__ == "__main__":
    main()
