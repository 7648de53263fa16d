"""What people look at, as HTML and SVG: one renderer for the page, the report and the notebook.

Everything is drawn from plain results, on the server's side, and escaped. Nothing is loaded from elsewhere.
"""

from cabai.views.drawing import Chart, chart
from cabai.views.rendering import asset, fragments, message, notebook, page, report, status_table, studies, table
from cabai.views.seen import Seen

__all__ = [
    "Chart",
    "Seen",
    "asset",
    "chart",
    "fragments",
    "message",
    "notebook",
    "page",
    "report",
    "status_table",
    "studies",
    "table",
]
