"""`ludus browse`, which `ludus show --browse` runs too."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from ludus.cli.commands import Argument


def browse(
    path: Annotated[
        Path | None, Argument(metavar="PATH", help="A collection's folder, or any folder; default: runs.")
    ] = None,
) -> None:
    """Browse runs, tasks and rollouts in the terminal.

    A run may still be collected meanwhile.

    Example: ludus browse runs
    """
    from ludus.errors import UserError
    from ludus_browser.app import Browser

    place = path or (Path("runs") if Path("runs").is_dir() else Path())
    if not place.exists():
        raise UserError(f"{place} does not exist", "Name a collection's folder, or a folder with several of them")
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UserError("browsing needs a terminal", f"Without one: ludus show {place}, or ludus view {place}")
    Browser([place]).run()
