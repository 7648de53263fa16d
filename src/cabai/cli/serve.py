"""cabai serve: studies over HTTP."""

from __future__ import annotations

import json

import typer

from cabai.cli.options import JsonOption, option, takes
from cabai.support.validation import optional


@takes()
def serve(
    storage: str,
    host: str = option("Address to listen on. 127.0.0.1: this machine only.", "127.0.0.1"),
    port: int = option("Port to listen on. 0: any free port.", 8000, min=0, max=65535),
    token_file: str | None = option(
        "File with two lines, `work TOKEN` and `read TOKEN`. Created if it does not exist."
    ),
    certfile: str | None = option("TLS certificate, for https."),
    keyfile: str | None = option("Private key of the certificate."),
    behind_proxy: bool = option("A proxy in front of the server handles https.", False),
    allow_host: list[str] | None = option("Another host name of the server. May be repeated."),
    as_json: JsonOption = False,
) -> None:
    """Serve studies over HTTP until Ctrl-C.

    Prints one line: the address of the page, with the token that workers need. Workers in any language ask and tell
    over HTTP; in Python, use storage="http://TOKEN@HOST:PORT", or put the token in the environment variable
    CABAI_TOKEN.

    Example: cabai serve --storage sqlite:///cabai.db --token-file tokens.txt
    """
    optional("fastapi")
    optional("uvicorn")
    from cabai.server.serving import serve as run

    run(
        storage, host=host, port=port, token_file=token_file, certfile=certfile, keyfile=keyfile,
        behind_proxy=behind_proxy, allow_hosts=allow_host or (),
        ready=lambda address: typer.echo(json.dumps({"address": address}) if as_json else address),
    )  # fmt: skip
