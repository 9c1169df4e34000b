"""One run: its figures, its tasks, its failures, its tools, and a list of rollouts with a search."""

from __future__ import annotations

from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.widgets import DataTable, Footer, Input, Static, TabbedContent, TabPane

from ludus.cli.screen import number, one_line, reward_style, text, whole
from ludus.outcome import UNREWARDED
from ludus.view.listing import rollouts_page
from ludus.view.live_run import LiveRun
from ludus_browser.figures import figures
from ludus_browser.following import FollowingScreen, fill
from ludus_browser.rollout import RolloutScreen

#: How many rollouts of a search are listed.
LISTED = 500

TABLES = {
    "tasks": ("task", "pass rate", "passed", "completed", "failed", "masked", "reward", "asked"),
    "failures": ("stage", "kind", "attempts", "not retried", "causes", "a cause"),
    "tools": ("tool", "calls", "errors", "rollouts"),
    "rollouts": ("rollout", "outcome", "reward", "end", "turns", "tools", "tokens out", "seconds", "asked"),
}
QUERY_HINT = 'search: words, "phrases", reward:<1 outcome:failed tool:NAME kind:timeout task:ID -word'


class RunScreen(FollowingScreen):
    """One run. Enter on a task or a failure lists its rollouts; Enter on a rollout opens it."""

    BINDINGS: ClassVar = [
        Binding("escape", "app.pop_screen", "Back"),
        Binding("slash", "search", "Search", key_display="/"),
        *(Binding(str(at), f"tab('{name}')", name.title()) for at, name in enumerate(("figures", *TABLES), start=1)),
    ]

    def __init__(self, run: LiveRun) -> None:
        super().__init__()
        self._run, self._query = run, ""

    def compose(self) -> ComposeResult:
        """Tabs, with a table in each but the first."""
        yield Static(text(self._run.run.name, "bold"))
        yield Static(id="message")
        with TabbedContent(initial="tab-figures", id="tabs"):
            with TabPane("Figures", id="tab-figures"), VerticalScroll():
                yield Static(id="figures")
            for name, columns in TABLES.items():
                with TabPane(name.title(), id=f"tab-{name}"):
                    if name == "rollouts":
                        yield Input(placeholder=QUERY_HINT, id="search")
                    table: DataTable[Any] = DataTable(id=name, cursor_type="row", zebra_stripes=True)
                    table.add_columns(*columns)
                    yield table
        yield Footer()

    def version(self) -> Any:
        """Changes when the run has grown, or the query has changed."""
        return self._run.index.version, self._query

    def read(self) -> dict[str, Any]:
        """All figures, and the rollouts that match the query."""
        with self._run.index.reading() as database:
            page = rollouts_page(database, self._query, "order", 0, LISTED)
        return {**self._run.overview({}), "page": page}

    def show(self, content: dict[str, Any]) -> None:
        """Fill everything."""
        self.query_one("#figures", Static).update(figures(content))
        self._tasks = {str(task["id"]): task["task_id"] for task in content["tasks"]["cells"]}
        failures = content["failures"]
        self._failures = [(failure["stage"], failure["kind"]) for failure in failures]
        fill(self._table("tasks"), [(str(task["id"]), _task_cells(task)) for task in content["tasks"]["cells"]])
        fill(self._table("failures"), [(str(at), _failure_cells(failure)) for at, failure in enumerate(failures)])
        fill(self._table("tools"), [(tool["name"], _tool_cells(tool)) for tool in content["tools"]])
        page = content["page"]
        fill(self._table("rollouts"), [(str(row["id"]), _rollout_cells(row)) for row in page["rollouts"]])
        more = page["total"] - len(page["rollouts"])
        said = f"{page['total']:,} rollouts" + (f"; the first {LISTED} are listed, search for others" if more else "")
        self._table("rollouts").border_subtitle = said

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Open what was selected."""
        table, key = event.data_table.id, str(event.row_key.value)
        if table == "rollouts":
            self.app.push_screen(RolloutScreen(self._run, int(key), self._query))
        elif table == "tasks":
            self.search(f"task:{_quoted(self._tasks[key])}")
        elif table == "failures":
            stage, kind = self._failures[int(key)]
            self.search(f"outcome:failed all:yes stage:{_quoted(stage)} kind:{_quoted(kind)}")
        elif table == "tools":
            self.search(f"tool:{_quoted(key)}")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """List the rollouts that match."""
        self.search(event.value)
        self._table("rollouts").focus()

    def search(self, query: str) -> None:
        """List the rollouts that match a query."""
        self._query = query
        self.query_one("#search", Input).value = query
        self.action_tab("rollouts")
        self.look()

    def action_search(self) -> None:
        """Go to the search."""
        self.action_tab("rollouts")
        self.query_one("#search", Input).focus()

    def action_tab(self, name: str) -> None:
        """Show a tab, and put the cursor into its table."""
        self.query_one("#tabs", TabbedContent).active = f"tab-{name}"
        if name != "figures":
            self._table(name).focus()

    def _table(self, name: str) -> DataTable[Any]:
        return self.query_one(f"#{name}", DataTable)


def _quoted(value: Any) -> str:
    """A value in a query. A quotation mark in it becomes a wildcard; a value with a wildcard is a pattern (GLOB)."""
    pattern = str(value)
    if '"' in pattern or "*" in pattern:
        pattern = pattern.replace("[", "[[]").replace('"', "*")
    return f'"{pattern}"'


def _task_cells(task: dict[str, Any]) -> list[Any]:
    rate = task["passed"] / task["completed"] if task["completed"] else None
    bar = "█" * round(rate * 10) + "·" * (10 - round(rate * 10)) + f" {rate:4.0%}" if rate is not None else "-"
    counts = [f"{task[name]:,}" for name in ("passed", "completed", "failed", "masked")]
    return [text(one_line(str(cell))) for cell in (task["task_id"], bar, *counts, number(task["mean"]), task["about"])]


def _failure_cells(failure: dict[str, Any]) -> list[Any]:
    names = ("stage", "kind", "count", "final", "causes", "cause")
    return [text(one_line(str(failure[name]))) for name in names]


def _tool_cells(tool: dict[str, Any]) -> list[Any]:
    return [text(one_line(str(tool[name]))) for name in ("name", "calls", "errors", "rollouts")]


def _rollout_cells(row: dict[str, Any]) -> list[Any]:
    failed = row["outcome"] in UNREWARDED
    end = f"{row['stage']}: {row['kind']}" if failed else row["mask"] or row["stop_reason"] or "-"
    seconds = f"{row['seconds']:.2f}" if row["seconds"] is not None else "-"
    about = row["cause"] if failed else row["about"]
    cells = [row["rollout_id"], row["outcome"], number(row["reward"]), end, row["turns"], row["tool_calls"]]
    shown = [text(one_line(str(cell))) for cell in (*cells, whole(row["output_tokens"]), seconds, about)]
    shown[2].style = reward_style(row["reward"])
    return shown
