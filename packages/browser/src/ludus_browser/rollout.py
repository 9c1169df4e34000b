"""One rollout as a conversation with its verdict: the view of `ludus show DIR N`, with keys for the next rollout."""

from __future__ import annotations

from io import StringIO
from typing import Any, ClassVar

from rich.console import Console
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.widgets import Footer, Static

from ludus.cli.rollout_view import show_rollout
from ludus.cli.screen import text
from ludus.view.listing import neighbours
from ludus.view.live_run import LiveRun
from ludus.view.one import read_row
from ludus_browser.following import FollowingScreen

#: How much of a long text and of a long list is shown. The journal holds the rest.
MAX_TEXT = 20_000
MAX_ENTRIES = 500
_MAX_DEPTH = 40
_NARROWEST = 40


class RolloutScreen(FollowingScreen):
    """One rollout. n and p go to the next and the previous rollout of the list."""

    BINDINGS: ClassVar = [
        Binding("escape", "app.pop_screen", "Back"),
        Binding("n", "go('next')", "Next"),
        Binding("p", "go('previous')", "Previous"),
    ]

    def __init__(self, run: LiveRun, rollout: int, query: str) -> None:
        super().__init__()
        self._run, self._rollout, self._query = run, rollout, query
        self._around: dict[str, Any] = {}

    def compose(self) -> ComposeResult:
        """A text to scroll."""
        yield Static(id="place")
        yield Static(id="message")
        with VerticalScroll(id="scroll"):
            yield Static(id="conversation")
        yield Footer()

    def version(self) -> Any:
        """Changes with the rollout and with the width of the terminal."""
        return self._rollout, self.size.width

    def read(self) -> tuple[Text, dict[str, Any]]:
        """The rollout as text, and its neighbours."""
        width = max(self.size.width - 4, _NARROWEST)
        _, row = read_row(self._run.index, self._rollout)
        with self._run.index.reading() as database:
            around = neighbours(database, self._query, "order", self._rollout)
        return conversation(row, width), around

    def show(self, content: tuple[Text, dict[str, Any]]) -> None:
        """Show the text."""
        shown, self._around = content
        place, total = self._around.get("place"), self._around.get("total")
        self.query_one("#place", Static).update(text(f"{self._run.run.name}: rollout {place} of {total}", "bold"))
        self.query_one("#conversation", Static).update(shown)

    def on_resize(self) -> None:
        """Wrap the text again."""
        self.look()

    def action_go(self, where: str) -> None:
        """Go to the next or the previous rollout, if there is one."""
        other = self._around.get(where)
        if other is not None:
            self._rollout = int(other)
            self.query_one("#scroll", VerticalScroll).scroll_home(animate=False)
            self.look()


def conversation(row: dict[str, Any], width: int) -> Text:
    """A rollout as text of a given width: prompt, turns, verdict, times and tokens."""
    out = StringIO()
    console = Console(file=out, force_terminal=True, color_system="truecolor", width=width, highlight=False)
    show_rollout(console, _shortened(row))
    return Text.from_ansi(out.getvalue())


def _shortened(value: Any, depth: int = _MAX_DEPTH) -> Any:
    """The value with long texts and long lists cut. A cut text says how much is missing."""
    if isinstance(value, str):
        more = len(value) - MAX_TEXT
        return value if more <= 0 else f"{value[:MAX_TEXT]}\n… ({more:,} characters more)"
    if isinstance(value, (dict, list)) and depth <= 0:
        return "…"
    if isinstance(value, dict):
        return {key: _shortened(value[key], depth - 1) for key in list(value)[:MAX_ENTRIES]}
    if isinstance(value, list):
        shown = [_shortened(entry, depth - 1) for entry in value[:MAX_ENTRIES]]
        if len(value) > MAX_ENTRIES and isinstance(value[0], dict):
            said = f"… ({len(value) - MAX_ENTRIES:,} items more)"
            shown.append({"type": "message", "role": "system", "content": said})
        return shown
    return value
