"""`ludus data`: commands that look after datasets. One file per command; this file lists them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import typer

from ludus.cli.data.validate import validate

data = typer.Typer(name="data", no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False)


@data.callback()
def _data() -> None:
    """Convert, check, prepare and export datasets.

    Example: ludus data export runs/demo-mcqa --to sft --output sft.jsonl
    """


_COMMANDS: tuple[Callable[..., Any], ...] = (validate,)

for _command in _COMMANDS:
    data.command()(_command)
