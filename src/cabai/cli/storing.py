"""Which study, and where it is stored: what the commands about studies take."""

from __future__ import annotations

from typing import Annotated

import typer

NameArgument = Annotated[str, typer.Argument(help="The study's name.")]
StorageOption = Annotated[
    str,
    typer.Option(
        "--storage",
        envvar="CABAI_STORAGE",
        help="Where studies are stored: sqlite:///FILE or postgresql://USER@HOST/DATABASE; or where cabai serve runs, "
        "http://HOST:PORT.",
    ),
]
