"""How much evidence is enough: when one arm beats another, one file per threshold."""

from __future__ import annotations

import json
from pathlib import Path

from cabai.families import Family
from cabai.support.registry import Registry
from cabai.support.validation import InvalidInput
from cabai.thresholds.base import ALL_FAMILIES, Threshold
from cabai.thresholds.bets import Bets
from cabai.thresholds.calibrated import Calibrated
from cabai.thresholds.champion import Champion
from cabai.thresholds.contrast import Contrast
from cabai.thresholds.evalue import EValue
from cabai.thresholds.hedged import Hedged
from cabai.thresholds.kt import KT
from cabai.thresholds.mixture import Mixture
from cabai.thresholds.paper import Paper
from cabai.thresholds.stylized import Stylized
from cabai.thresholds.symmetric import Symmetric

__all__ = [
    "ALL_FAMILIES", "KT", "THRESHOLDS", "Bets", "Calibrated", "Champion", "Contrast", "EValue", "Hedged", "Mixture",
    "Paper", "Stylized", "Symmetric", "Threshold", "cheapest", "threshold_of",
]  # fmt: skip

#: cabai's thresholds by name; `THRESHOLDS.names` lists them.
THRESHOLDS: Registry[Threshold] = Registry(
    "threshold", Paper, Stylized, KT, Mixture, EValue, Contrast, Hedged, Champion, Bets, Symmetric, Calibrated
)


def threshold_of(given: str | Threshold | None, family: Family | None = None, best_of: int = 1) -> Threshold:
    """Return the threshold with this name, or the given threshold itself; for None, the cheapest one proven for the
    family.

    `best_of` is the number of arms if one of them must be shown to be the best, with epsilon 0, from pulls in the order
    of asking; else 1. Simulations, comparisons and studies all have this default. A name that ends in .json is a file
    written by `Certificate.save`: the threshold that it certifies.

    >>> print(threshold_of("paper(alpha=1.2)"))
    paper(alpha=1.2)
    >>> from cabai.families import family_of
    >>> print(*(threshold_of(None, family_of("gaussian"), best_of) for best_of in (1, 2, 3)))
    contrast hedged champion
    """
    if isinstance(given, str) and given.strip().endswith(".json"):
        given = certified_in(given.strip())
    return THRESHOLDS.get(cheapest(family, best_of) if given is None and family is not None else given)  # type: ignore[arg-type]


def certified_in(path: str | Path) -> str:
    """The threshold in a certificate file."""
    try:
        written = json.loads(Path(path).read_text(encoding="utf-8"))["threshold"]
    except OSError as error:
        raise InvalidInput(f"cannot read {path}: {error.strerror or error}.") from error
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise InvalidInput(f"{path} is not a certificate written by cabai calibrate.") from error
    found = THRESHOLDS.get(written)
    if not isinstance(found, Calibrated) or not found.is_certified:
        raise InvalidInput(f"{path} is not a certificate: its threshold is {found}.")
    return str(written)


def cheapest(family: Family, best_of: int = 1) -> str:
    """The name of a family's default threshold: the cheapest that it has the functions for, see `threshold_of`.

    These thresholds are proven for cabai's own families.

    >>> from cabai.families import family_of
    >>> cheapest(family_of("gaussian")), cheapest(family_of("bounded"))
    ('contrast', 'bets')
    """
    bound = dict(family.binding)
    if family.key in ("bounded", "symmetric"):
        return Symmetric.name if family.key == "symmetric" else Champion.name if best_of > 2 else Bets.name
    if "tilted" in bound and family.has_bound:
        if best_of > 2:
            return Champion.name
        return Hedged.name if best_of == 2 and family.key in Hedged.proven_for else Contrast.name
    return EValue.name if "remainder" in bound else Mixture.name
