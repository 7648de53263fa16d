"""The name of a study and where it is stored: shared by all commands about studies."""

from __future__ import annotations

from typing import Annotated

import typer

NameArgument = Annotated[str, typer.Argument(help="Name of the study.")]
StorageOption = Annotated[
    str,
    typer.Option(
        "--storage",
        envvar="CABAI_STORAGE",
        help="Where studies are stored: sqlite:///FILE, postgresql://USER@HOST/DATABASE, or http://HOST:PORT of a "
        "cabai serve.",
    ),
]
