"""A figure of Matplotlib that a notebook shows, also where nobody has called for Matplotlib's own magic."""

from __future__ import annotations

import io

from matplotlib import figure


class Figure(figure.Figure):
    """Shown as a picture where it is the result of a notebook's cell."""

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        self.savefig(buffer, format="png", dpi=150)
        return buffer.getvalue()
