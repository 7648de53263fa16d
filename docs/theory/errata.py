"""Write docs/theory/errata.md from what `cabai reproduce statements` shows: python docs/theory/errata.py"""

from __future__ import annotations

import re
from pathlib import Path

from cabai.paper.errata import ERRATA, SLIPS
from cabai.paper.lab import Lab
from cabai.paper.statements import STATEMENTS, statements

HEADER = """# The paper, statement by statement

Every numbered statement of the paper, how cabai checks it, and what it found (± one standard error). Where one is wrong
or not proven as printed, its row has the correct one, which cabai uses, and a counterexample. These commands print all:

```console
$ cabai reproduce statements
$ cabai reproduce errata
```
"""


def page() -> str:
    """The table with links, what CO does with many arms, and the errata that are in no row."""
    lab = Lab()
    section = statements(lab)
    rows = [
        "|".join(["", *(cell.replace("|", "\\|") for cell in row[:5]), links(*row[5:]), ""])
        for row in section.tables[0].rows
    ]
    table = ["|statement|says|checked|figure|verdict|links|", "|---|---|---|---|---|---|", *rows]
    in_rows = [erratum for each in STATEMENTS for erratum in each.errata]
    others = [
        f"- **{each.where}**: {each.says}. Correct: {each.right}. Check: {each.show(lab)}."
        for each in ERRATA if each not in in_rows
    ]  # fmt: skip
    parts = [HEADER, *table, "\n## CO with many arms\n", section.tables[-1].caption, "\n## Other errata\n", *others,
             "- **Notation**. " + " ".join(SLIPS)]  # fmt: skip
    return re.sub(r"\b([Twy])\*", r"\1\\*", "\n".join(parts) + "\n").replace(" ± ", "±")


def links(code: str, test: str) -> str:
    return f"[code](../../{code}),[test](../../{test.partition('::')[0]})"


if __name__ == "__main__":
    Path(__file__).with_suffix(".md").write_text(page())
