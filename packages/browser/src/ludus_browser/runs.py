"""The list of runs."""

from __future__ import annotations

from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding
from textual.widgets import DataTable, Footer, Static

from ludus.cli.screen import number, one_line, text, whole
from ludus.view.live import LiveRuns
from ludus_browser.following import FollowingScreen, fill
from ludus_browser.run import RunScreen

COLUMNS = ("run", "environment", "model", "state", "rollouts", "failed", "masked", "reward", "pass@1", "tokens out")


class RunsScreen(FollowingScreen):
    """All runs below the given paths, with their figures. Enter opens a run."""

    BINDINGS: ClassVar = [Binding("enter", "open", "Open", show=True)]

    def __init__(self, runs: LiveRuns) -> None:
        super().__init__()
        self._runs = runs

    def compose(self) -> ComposeResult:
        """A table."""
        yield Static(id="message")
        table: DataTable[Any] = DataTable(id="runs", cursor_type="row", zebra_stripes=True)
        table.add_columns(*COLUMNS)
        yield table
        yield Footer()

    def version(self) -> Any:
        """Changes when any run has grown."""
        return self._runs.version, self._runs.versions()

    def read(self) -> list[dict[str, Any]]:
        """The figures of all runs."""
        return self._runs.headlines()

    def show(self, runs: list[dict[str, Any]]) -> None:
        """Fill the table."""
        fill(self.query_one("#runs", DataTable), [(run["key"], _cells(run)) for run in runs])

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Open a run, unless it was deleted since it was listed."""
        run = self._runs.runs.get(str(event.row_key.value))
        if run is not None:
            self.app.push_screen(RunScreen(run))


def _cells(run: dict[str, Any]) -> list[Any]:
    counts, state, at_k = run["counts"], run["state"], run["pass@k"]
    total = f"/{state['total']:,}" if state["total"] is not None else ""
    paused = state["control"] is not None and state["control"]["paused"]
    speed = f" {state['per_second']:.2g}/s" if state["per_second"] and state["running"] else ""
    values = (
        run["name"],
        ", ".join(run["environments"]),
        run["model"],
        run["problem"] or ("paused" if paused else f"running{speed}" if state["running"] else "ended"),
        f"{counts['dispatched']:,}{total}",
        f"{counts['failed']:,}",
        f"{counts['masked']:,}",
        number(run["reward"]["mean"]),
        number(at_k.get("1")),
        whole(run["tokens"]["output"]),
    )
    return [text(one_line(str(value))) for value in values]
