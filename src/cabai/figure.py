"""A figure of Matplotlib that a notebook shows, also without Matplotlib's own magic command."""

from __future__ import annotations

import io

from matplotlib import figure


class Figure(figure.Figure):
    """Shown as a picture when it is the result of a notebook's cell.

    >>> Figure()._repr_png_()[1:4]
    b'PNG'
    """

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        self.savefig(buffer, format="png", dpi=150)
        return buffer.getvalue()
