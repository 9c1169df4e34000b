"""`ludus data`: commands that look after datasets. One file per command; this file lists them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ludus.cli.commands import CommandGroup
from ludus_data.commands.convert import convert
from ludus_data.commands.dedupe import dedupe
from ludus_data.commands.download import download
from ludus_data.commands.export import export
from ludus_data.commands.list import list_
from ludus_data.commands.overlap import overlap
from ludus_data.commands.prepare import prepare
from ludus_data.commands.sample import sample
from ludus_data.commands.show import show
from ludus_data.commands.split import split
from ludus_data.commands.stats import stats
from ludus_data.commands.upload import upload
from ludus_data.commands.validate import validate


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
