"""cabai calibrate: the least evidence that keeps delta, found by simulation."""

from __future__ import annotations

from typing import Any

from cabai.cli.options import file_option, takes
from cabai.cli.tools import progress_shown, with_written


@takes("calibrate")
def calibrate(
    out: str | None = file_option("Write the certificate to this .json file, which --threshold can read.", "json"),
    **settings: Any,
) -> tuple[Any, Any]:
    """Find a cheaper threshold for one policy, by simulation.

    A proven threshold holds for every policy, instance and number of pulls. At delta = 0.05 this caution is most of
    the bill. This command searches the instances that are hardest for one policy, family, number of arms and delta. It
    finds the smallest c for which stopping at Z > log(c (1 + log t) / delta) is wrong with probability at most delta
    on them. The result is a threshold, calibrated(c=...), and a certificate: what was searched, and with what
    confidence. It is evidence, not a proof, and says nothing about runs longer than --max-pulls. If you need a
    proof, leave out the threshold: the default is proven.

    Example: cabai calibrate --family gaussian --costs 1,0.1,0.01 --policy co --delta 0.05 --out trial.json

    Then: cabai simulate --family gaussian --means 1.5,1,0.5 --costs 1,0.1,0.01 --policy co --threshold trial.json
    """
    from cabai.calibration import calibrate

    with progress_shown() as progress:
        certificate = calibrate(**settings, progress=progress)
    if out is not None:
        certificate.save(out)
    return certificate.to_dict(), with_written(certificate, out)
