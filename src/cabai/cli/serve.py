"""cabai serve: studies over HTTP."""

from __future__ import annotations

from typing import Annotated

import typer

from cabai.cli.storing import StorageOption
from cabai.cli.tools import JsonOption, show_json
from cabai.study import STORAGE
from cabai.support.validation import optional


def serve(
    storage: StorageOption = STORAGE,
    host: Annotated[str, typer.Option("--host", help="Where to listen; 127.0.0.1: this machine alone.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", help="The port; 0 for any that is free.", min=0, max=65535)] = 8000,
    token_file: Annotated[
        str | None,
        typer.Option(
            "--token-file",
            help="A file of tokens, `work TOKEN` and `read TOKEN`; made if it is not there.",
        ),
    ] = None,
    certfile: Annotated[str | None, typer.Option("--certfile", help="A certificate, for https.")] = None,
    keyfile: Annotated[str | None, typer.Option("--keyfile", help="The key to it.")] = None,
    behind_proxy: Annotated[
        bool, typer.Option("--behind-proxy", help="A proxy before the server speaks https with the world.")
    ] = False,
    allow_host: Annotated[
        list[str] | None, typer.Option("--allow-host", help="Another name by which the server is called.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Serve studies over HTTP, until Ctrl-C. Prints one line: the address, with the token for working.

    Workers in any language ask and tell there; in Python, with storage="http://TOKEN@HOST:PORT" (or the token in the
    environment variable CABAI_TOKEN).
    """
    optional("fastapi")
    optional("uvicorn")
    from cabai.server.serving import serve as run

    run(
        storage, host=host, port=port, token_file=token_file, certfile=certfile, keyfile=keyfile,
        behind_proxy=behind_proxy, allow_hosts=allow_host or (),
        ready=lambda address: show_json({"address": address}) if as_json else typer.echo(address),
    )  # fmt: skip
