"""Write docs/theory/errata.md from the errata that `cabai reproduce errata` shows: python docs/theory/errata.py"""

from __future__ import annotations

from pathlib import Path

from cabai.paper.errata import ERRATA, SLIPS, Erratum
from cabai.paper.lab import Lab

HEADER = """# Errata of the paper

These statements of the paper are wrong, or not proven as printed. cabai uses the corrected ones. This command prints
them with a check of each:

```console
$ cabai reproduce errata
```
"""


def page() -> str:
    """What changes a result, with its number; then what does not."""
    lab = Lab()
    results = [f"{line(each)} Check: {each.shown(lab)}." for each in ERRATA if not each.minor]
    slips = [line(each) for each in ERRATA if each.minor] + ["- **Notation**. " + " ".join(SLIPS)]
    parts = [HEADER, "## Results\n", *results, "\n## Proofs and notation\n", *slips]
    return ("\n".join(parts) + "\n").replace("T*", "T\\*")


def line(each: Erratum) -> str:
    return f"- **{each.where}**. {each.source}: {each.says}. Correct: {each.right}."


if __name__ == "__main__":
    Path(__file__).with_suffix(".md").write_text(page())
