"""What people look at, as HTML and SVG: one renderer for the page, the report and the notebook.

Everything is drawn from plain results, on the server's side, and escaped. Nothing is loaded from elsewhere.
"""

from cabai.views.rendering import asset, fragments, message, notebook, page, report, studies, table
from cabai.views.seen import Seen

__all__ = ["Seen", "asset", "fragments", "message", "notebook", "page", "report", "studies", "table"]
