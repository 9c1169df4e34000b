"""The browser: a stack of screens over the same index as the web viewer. It follows runs while they are written."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from textual.app import App
from textual.binding import Binding

from ludus.view.live import LiveRuns
from ludus_browser.runs import RunsScreen

CSS = """
DataTable { height: 1fr; }
#figures, #conversation { padding: 0 1; height: auto; }
#message { color: $error; height: auto; padding: 0 1; }
#search { margin: 0; }
"""


class Browser(App[None]):
    """Browse runs in a terminal. Enter opens, Escape goes back, / searches, q quits."""

    CSS = CSS
    TITLE = "ludus"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar = [Binding("q", "quit", "Quit")]

    def __init__(self, paths: list[Path]) -> None:
        super().__init__()
        self.runs = LiveRuns(paths, {})

    def on_mount(self) -> None:
        """Begin to index, and list the runs."""
        self.runs.start()
        self.push_screen(RunsScreen(self.runs))

    def on_unmount(self) -> None:
        """End the background thread."""
        self.runs.stop()
