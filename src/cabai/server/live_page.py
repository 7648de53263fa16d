"""The page of one study, served while it runs."""

from __future__ import annotations

import os
import sys
import threading
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import quote

from cabai.server.access import READ, Access
from cabai.server.app import app_over
from cabai.server.serving import StreamingServer, bind, configured
from cabai.server.studies import OpenStudies
from cabai.study import Study
from cabai.study.create import is_served


@contextmanager
def live_page(study: Study) -> Iterator[str]:
    """Serve the page of a study, read-only, on a free port of this machine; returns its address, with a token.

    A study on a server has its page there.
    """
    path = f"/studies/{quote(study.name, safe='')}"
    if is_served(study.storage):
        yield f"{study.storage}{path}"
        return
    access = Access.new()
    app = app_over(OpenStudies(study.storage, only=study), access)
    app.state.streams.last_words = "The run is over: this is the study at its end."
    server, bound = StreamingServer(configured(app)), bind("127.0.0.1", 0)
    thread = threading.Thread(target=server.run, args=([bound],), name="cabai page", daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{bound.getsockname()[1]}{path}?token={access.tokens[READ]}"
    finally:
        server.end()  # after a last update, so that viewers see how it ended
        thread.join(10)
        bound.close()


@contextmanager
def watched(study: Study) -> Iterator[None]:
    """Print the address of a study's page, and open it if there is a screen."""
    with live_page(study) as address:
        print(f"page: {address}", file=sys.stderr, flush=True)
        if has_screen():
            webbrowser.open(address)
        yield


def has_screen() -> bool:
    """Whether somebody uses this machine's screen and sees what opens."""
    if not sys.stderr.isatty():
        return False
    return sys.platform in ("darwin", "win32") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
