"""cabai calibrate: the least evidence that keeps delta, found by simulation."""

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
    policy: Annotated[str, typer.Option("--policy", help=f"Policy to calibrate for: {POLICY_HELP}")] = policies.DEFAULT,
    delta: DeltaOption = 0.05,
    epsilon: EpsilonOption = 0.0,
    max_pulls: Annotated[
        int, typer.Option("--max-pulls", help="Longest run: the certificate covers errors up to this many pulls.")
    ] = 10_000,
    trajectories: Annotated[
        int, typer.Option("--trajectories", help="Simulated runs per hard instance. More runs find a smaller c.")
    ] = 4000,
    confidence: Annotated[
        float, typer.Option("--confidence", help="Probability that the certificate is correct.")
    ] = 0.99,
    cost_model: CostModelOption = "fixed",
    seed: SeedOption = 0,
    workers: WorkersOption = None,
    engine: EngineOption = None,
    scheduler: SchedulerOption = None,
    address: AddressOption = None,
    out: Annotated[
        str | None, typer.Option("--out", help="Write the certificate to this .json file, which --threshold can read.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Find a cheaper threshold for one policy, by simulation.

    A proven threshold holds for every policy, instance and number of pulls. At delta = 0.05 this caution is most of
    the bill. This command searches the instances that are hardest for one policy, family, number of arms and delta. It
    finds the smallest c for which stopping at Z > log(c (1 + log t) / delta) is wrong with probability at most delta
    on them. The result is a threshold, calibrated(c=...), and a certificate: what was searched, and with what
    confidence. It is evidence, not a proof, and says nothing about runs longer than --max-pulls. If you need a proof,
    use the threshold `contrast`.

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
