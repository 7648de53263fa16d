"""A Matplotlib figure that a notebook shows without Matplotlib's magic commands."""

from __future__ import annotations

import io

from matplotlib import figure


class Figure(figure.Figure):
    """A figure that is shown as a picture if it is the result of a notebook cell.

    >>> Figure()._repr_png_()[1:4]
    b'PNG'
    """

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        self.savefig(buffer, format="png", dpi=150)
        return buffer.getvalue()
