"""Write docs/theory/errata.md from the errata that `cabai reproduce errata` shows: python docs/theory/errata.py"""

from __future__ import annotations

from pathlib import Path

from cabai.paper.errata import ERRATA, SLIPS, Erratum
from cabai.paper.lab import Lab

HEADER = """# Errata of the paper

Where the paper slips, and what is right: what cabai computes. A number for each:

```console
$ cabai reproduce errata
```
"""


def page() -> str:
    """What changes a result, with its number; then what does not."""
    lab = Lab()
    results = [f"{line(each)} {upper(each.shown(lab))}." for each in ERRATA if not each.minor]
    slips = [line(each) for each in ERRATA if each.minor] + ["- " + " ".join(SLIPS)]
    parts = [HEADER, "## Results\n", *results, "\n## Proofs and notation\n", *slips]
    return ("\n".join(parts) + "\n").replace("T*", "T\\*")


def line(each: Erratum) -> str:
    return f"- **{each.where}**: {each.says}. Right: {each.right}."


def upper(sentence: str) -> str:
    return sentence[0].upper() + sentence[1:]


if __name__ == "__main__":
    Path(__file__).with_suffix(".md").write_text(page())
