"""The list of studies, for people."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from cabai.study.status import Status


def listed(found: Iterable[Status], damaged: Iterable[str]) -> str:
    """A page that names every study and says how it stands."""
    rows = [f"<li><strong>{escape(each.name)}</strong>: {escape(each.sentence)}</li>" for each in found]
    rows += [f"<li>{escape(text)}</li>" for text in damaged]
    content = f"<ul>{''.join(rows)}</ul>" if rows else "<p>There are no studies yet.</p>"
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>Studies</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"></head>'
        f"<body><h1>Studies</h1>{content}</body></html>"
    )
