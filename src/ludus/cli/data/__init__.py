"""`ludus data`: commands that look after datasets. One file per command; this file lists them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ludus.cli.commands import CommandGroup
from ludus.cli.data.convert import convert
from ludus.cli.data.dedupe import dedupe
from ludus.cli.data.download import download
from ludus.cli.data.export import export
from ludus.cli.data.list import list_
from ludus.cli.data.overlap import overlap
from ludus.cli.data.prepare import prepare
from ludus.cli.data.sample import sample
from ludus.cli.data.show import show
from ludus.cli.data.split import split
from ludus.cli.data.stats import stats
from ludus.cli.data.upload import upload
from ludus.cli.data.validate import validate


@CommandGroup
def data() -> None:
    """Convert, check, prepare and export datasets.

    Example: ludus data export runs/demo-mcqa --to sft --output sft.jsonl
    """


_COMMANDS: tuple[Callable[..., Any], ...] = (
    convert,
    validate,
    prepare,
    split,
    dedupe,
    overlap,
    sample,
    stats,
    show,
    export,
    download,
    upload,
    list_,
)

for _command in _COMMANDS:
    data.command(_command)
