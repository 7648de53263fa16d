"""Write docs/errata.md from the errata that `cabai reproduce errata` shows: python docs/errata.py"""

from __future__ import annotations

from pathlib import Path

from cabai.paper.errata import ERRATA, SLIPS
from cabai.paper.lab import Lab

HEADER = """# Errata of the paper

Where the paper slips, what is right, and a number that shows it. cabai computes what stands under "right". Every number
below is made by

```console
$ cabai reproduce errata
```

and this page by `python docs/errata.py` (the code is in `src/cabai/paper/errata.py`).
"""


def page() -> str:
    lab = Lab()
    parts = [HEADER]
    for i, each in enumerate(ERRATA, 1):
        points = [f"The paper has: {each.says}.", f"Right is: {each.right}.", f"Shown by: {each.shown(lab)}."]
        parts.append(f"## {i}. {each.where}\n\n" + "".join(f"- {point}\n" for point in points))
    parts.append("## Slips of notation\n\n" + "\n".join(f"- {slip}" for slip in SLIPS) + "\n")
    return "\n".join(parts).replace("..\n", ".\n")


if __name__ == "__main__":
    Path(__file__).with_suffix(".md").write_text(page())
