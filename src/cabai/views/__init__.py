"""HTML and SVG for people: one renderer for the page, the report and the notebook.

Everything is rendered on the server from plain results, and escaped. Nothing is loaded from other sites.
"""

from cabai.views.drawing import Chart, chart
from cabai.views.rendering import asset, fragments, notebook, page, render, report, status_table, table
from cabai.views.study_view import StudyView

__all__ = [
    "Chart", "StudyView", "asset", "chart", "fragments", "notebook", "page", "render", "report", "status_table",
    "table",
]  # fmt: skip
