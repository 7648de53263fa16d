"""Studies over HTTP. Importing this imports FastAPI (extra `server`)."""

from cabai.server.access import Access, tokens_in
from cabai.server.app import make_app
from cabai.server.serving import serve

__all__ = ["Access", "make_app", "serve", "tokens_in"]
