"""cabai calibrate: the least evidence that keeps delta, by simulation."""

from __future__ import annotations

from typing import Annotated

import typer

from cabai import policies
from cabai.cli.options import (
    POLICY_HELP,
    AddressOption,
    CostModelOption,
    CostsOption,
    DeltaOption,
    EngineOption,
    EpsilonOption,
    FamilyOption,
    SchedulerOption,
    SeedOption,
    WorkersOption,
    read_engine,
)
from cabai.cli.tools import (
    JsonOption,
    read_numbers,
    show_json,
    status_line,
    told_what_is_cancelled,
)
from cabai.support.files import file_to_write
from cabai.support.validation import InvalidInput


def calibrate(
    family: FamilyOption,
    costs: CostsOption,
    policy: Annotated[
        str, typer.Option("--policy", help=f"The policy that will be run: {POLICY_HELP}")
    ] = policies.DEFAULT,
    delta: DeltaOption = 0.05,
    epsilon: EpsilonOption = 0.0,
    max_pulls: Annotated[
        int, typer.Option("--max-pulls", help="How long a run may last: the certificate speaks of errors up to there.")
    ] = 10_000,
    trajectories: Annotated[
        int, typer.Option("--trajectories", help="On each hard instance; more of them find a smaller constant.")
    ] = 4000,
    confidence: Annotated[
        float, typer.Option("--confidence", help="The probability that what the certificate says is true.")
    ] = 0.99,
    cost_model: CostModelOption = "fixed",
    seed: SeedOption = 0,
    workers: WorkersOption = None,
    engine: EngineOption = None,
    scheduler: SchedulerOption = None,
    address: AddressOption = None,
    out: Annotated[
        str | None, typer.Option("--out", help="Write the certificate to this JSON file; --threshold can read it.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Find, by simulation, the least evidence with which one policy keeps delta: less than any proof asks for.

    A proven threshold guards against every policy, instance and number of pulls at once, and at delta = 0.05 that is
    most of the bill. This command searches the instances that are hardest for one policy, family, number of arms and
    delta, and finds the smallest c for which stopping at Z > log(c (1 + log t) / delta) errs at most delta there. The
    result is a threshold, written calibrated(c=...), and a certificate: what was searched, and how surely. It is
    evidence, not a proof, and does not speak of more than --max-pulls pulls. Use `contrast` where you need a proof.

    Example: cabai calibrate --family gaussian --costs 1,0.1,0.01 --policy co --delta 0.05 --out trial.json

    Then: cabai simulate --family gaussian --means 1.5,1,0.5 --costs 1,0.1,0.01 --policy co --threshold trial.json
    """
    from cabai.calibration import calibrate

    place = read_engine(engine, scheduler, address)
    if out is not None and not out.endswith(".json"):
        raise InvalidInput(f"--out must end in .json, got {out!r}.")
    if out is not None:
        file_to_write(out)  # before any work is done
    with told_what_is_cancelled(), status_line() as progress:
        certificate = calibrate(
            family, read_numbers(costs, "--costs"), policy, delta=delta, epsilon=epsilon, max_pulls=max_pulls,
            trajectories=trajectories, confidence=confidence, cost_model=cost_model, seed=seed, workers=workers,
            **place, progress=progress,
        )  # fmt: skip
    if out is not None:
        certificate.save(out)
    if as_json:
        show_json(certificate.to_dict())
        return
    typer.echo(certificate)
    if out is not None:
        typer.echo(f"written: {out}")
