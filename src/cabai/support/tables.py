"""Small tables of text, for the terminal and for `__repr__`."""

from __future__ import annotations

from collections.abc import Sequence


def table(rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """Format rows as lines with aligned columns: the first `left` columns to the left, the others to the right.

    >>> print(table([["arm", "mean"], ["small", "0.5"]]))
    arm    mean
    small   0.5
    """
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [
            cell.ljust(w) if i < left else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)
