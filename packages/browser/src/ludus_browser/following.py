"""A screen with figures from an index. It reads them again when the index has grown."""

from __future__ import annotations

import asyncio
from typing import Any

from textual import work
from textual.screen import Screen
from textual.widgets import DataTable, Static

from ludus.cli.screen import text
from ludus.errors import UserError
from ludus.http.messages import Refusal
from ludus.view.database import IndexBusy, IndexLost

#: Seconds between two polls of the index.
LOOK_EVERY = 1.0


class FollowingScreen(Screen[None]):
    """Reads in a thread, so that a large run does not freeze the terminal. Subclasses define the three methods."""

    def version(self) -> Any:
        """A value that changes when there is something new to show."""
        raise NotImplementedError

    def read(self) -> Any:
        """The content of the screen. Called in a thread."""
        raise NotImplementedError

    def show(self, content: Any) -> None:
        """Show the content that `read` returned."""
        raise NotImplementedError

    def on_mount(self) -> None:
        """Show, and look again every second."""
        self._shown: Any = None
        self.look()
        self.set_interval(LOOK_EVERY, self.look)

    def look(self) -> None:
        """Read again if there is something new."""
        version = self.version()
        if version != self._shown:
            self._shown = version
            self.reload()

    @work(exclusive=True)
    async def reload(self) -> None:
        """Read and show. A mistake in a query and an unreadable file are shown as a message."""
        message = self.query_one("#message", Static)
        try:
            content = await asyncio.to_thread(self.read)
        except (UserError, Refusal) as error:
            message.update(text(error))
            if isinstance(error, (IndexBusy, IndexLost)):
                self._shown = None  # the next look may succeed
            return
        message.update("")
        self.show(content)


def fill(table: DataTable[Any], rows: list[tuple[str, list[Any]]]) -> None:
    """Replace the rows of a table, each with its key. The cursor stays in its line."""
    line = table.cursor_row
    table.clear()
    for key, cells in rows:
        table.add_row(*cells, key=key)
    if rows:
        table.move_cursor(row=min(line, len(rows) - 1))
