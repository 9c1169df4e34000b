"""The terminal browser of `ludus browse`, driven by Textual's own pilot."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
from click.testing import CliRunner
from viewed_runs import HOSTILE, being_written, deleted, write_run
from waiting import until_async
from worker_runs import environment, rows, run

from ludus.cli import command_line
from ludus.errors import UserError

pytest.importorskip("textual", reason="needs: pip install textual")

from ludus_browser.app import Browser
from ludus_browser.rollout import MAX_TEXT, conversation
from textual.pilot import Pilot
from textual.widgets import DataTable, Input, Static


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two runs: tools, failures and masked rollouts, and one with hostile text."""
    folder = environment(tmp_path_factory.mktemp("browser") / "acts")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        run(folder, "runs/first", input=rows(5, "fail", "mask"), repeats=2)
        asked = {"input": f"[bold]{HOSTILE}[/] $x [link"}
        run(folder, "runs/second", input=[{"responses_create_params": asked, "act": "", "task_id": '[a"b]'}])
    return folder / "runs"


@asynccontextmanager
async def browsing(path: Path) -> AsyncIterator[Pilot[None]]:
    async with Browser([path]).run_test(size=(140, 50)) as pilot:
        await until_async(lambda: shows(pilot, "runs", 1))
        yield pilot


def table(pilot: Pilot[None], name: str) -> DataTable[Any]:
    return pilot.app.screen.query_one(f"#{name}", DataTable)


def shows(pilot: Pilot[None], name: str, at_least: int) -> bool:
    found = pilot.app.screen.query(f"#{name}")
    return bool(found) and table(pilot, name).row_count >= at_least


def cells(pilot: Pilot[None], name: str) -> list[list[str]]:
    found = table(pilot, name)
    return [[str(cell) for cell in found.get_row_at(at)] for at in range(found.row_count)]


def said(pilot: Pilot[None], name: str) -> str:
    """The text of a part of the screen, as it is drawn."""
    found = pilot.app.screen.query(f"#{name}")
    if not found:
        return ""
    part = found.only_one(Static)
    return "\n".join("".join(piece.text for piece in part.render_line(y)) for y in range(part.size.height))


async def open_first_run(pilot: Pilot[None]) -> None:
    await until_async(lambda: shows(pilot, "runs", 2) and cells(pilot, "runs")[0][4].startswith("10"))
    await pilot.press("enter")
    await until_async(lambda: shows(pilot, "rollouts", 10))


async def test_the_list_of_runs_has_the_figures_of_each_run(runs):
    async with browsing(runs) as pilot:
        await until_async(lambda: shows(pilot, "runs", 2) and cells(pilot, "runs")[0][4].startswith("10"))
        first = cells(pilot, "runs")[0]
        metrics = orjson.loads((runs / "first" / "metrics.json").read_bytes())
        assert first[0].endswith("first")
        assert first[1:7] == ["acts", "scripted:answers:respond", "ended", "10/10", "2", "2"]
        assert first[7] == f"{metrics['reward']['mean']:.4g}"
        assert first[9] == "-", "the scripted model reports no tokens"


async def test_a_bar_of_rewards_is_labelled_with_the_rewards_in_it(tmp_path):
    journal = write_run(tmp_path / "run", tasks=5, repeats=1) / "rollouts.jsonl"
    records = [orjson.loads(line) for line in journal.read_bytes().splitlines()]
    rewards = (0.0, 1.0, 1.0, 0.52, 0.54)
    changed = [orjson.dumps({**record, "reward": reward}) for record, reward in zip(records, rewards, strict=True)]
    journal.write_bytes(b"\n".join([*changed, b""]))
    async with browsing(tmp_path) as pilot:
        await until_async(lambda: cells(pilot, "runs")[0][4].startswith("5"))
        await pilot.press("enter")
        await until_async(lambda: "rewards" in said(pilot, "figures"))
        bars = [line.split("█") for line in said(pilot, "figures").splitlines() if "█" in line]
        labels = [bar[0].strip() for bar in bars]
        assert labels[:3] == ["0", "0.52 to 0.54", "1"]


async def test_a_run_shows_rewards_pass_rates_failures_times_and_tools(runs):
    async with browsing(runs) as pilot:
        await open_first_run(pilot)
        await until_async(lambda: "time by stage" in said(pilot, "figures"))
        shown = said(pilot, "figures")
        for part in ("10 dispatched, 6 completed, 2 failed, 2 masked", "rewards", "pass@1", "verify/crash", "model "):
            assert part in shown
        assert "tokens: not recorded" in shown
        assert [row[0] for row in cells(pilot, "tools")] == ["add"]
        tasks = cells(pilot, "tasks")
        assert len(tasks) == 5
        assert sum(int(row[4]) for row in tasks) == 2
        stage, kind, attempts, _, _, cause = cells(pilot, "failures")[0]
        assert (stage, kind, attempts) == ("verify", "crash", "2")
        assert "no verdict" in cause


async def test_enter_on_a_failure_lists_its_rollouts_and_a_rollout_opens_as_a_conversation(runs):
    async with browsing(runs) as pilot:
        await open_first_run(pilot)
        await pilot.press("3", "enter")
        await until_async(lambda: len(cells(pilot, "rollouts")) == 2)
        assert {row[1] for row in cells(pilot, "rollouts")} == {"failed"}
        await pilot.press("enter")
        await until_async(lambda: "failed in verify: crash" in said(pilot, "conversation"))
        shown = said(pilot, "conversation")
        assert shown.index("row 0") < shown.index('"number"') < shown.index("failed in verify: crash")
        assert "rollout 1 of 2" in said(pilot, "place")
        await pilot.press("n")
        await until_async(lambda: "rollout 2 of 2" in said(pilot, "place"))
        await pilot.press("p")
        await until_async(lambda: "rollout 1 of 2" in said(pilot, "place"))
        await pilot.press("escape", "escape")
        await until_async(lambda: shows(pilot, "runs", 2))


async def test_the_search_finds_words_and_filters_and_a_mistake_is_explained(runs):
    async with browsing(runs) as pilot:
        await open_first_run(pilot)
        await pilot.press("slash", *"outcome:masked", "enter")
        await until_async(lambda: len(cells(pilot, "rollouts")) == 2)
        assert {row[1] for row in cells(pilot, "rollouts")} == {"masked"}
        await pilot.press("slash")
        pilot.app.screen.query_one("#search", Input).value = '"row 3"'
        await pilot.press("enter")
        await until_async(lambda: {row[-1] for row in cells(pilot, "rollouts")} == {"row 3"})
        await pilot.press("slash")
        pilot.app.screen.query_one("#search", Input).value = "outcom:masked"
        await pilot.press("enter")
        await until_async(lambda: "there is no filter `outcom:`" in said(pilot, "message"))


async def test_text_of_a_model_is_shown_as_it_is_and_never_as_markup(runs):
    async with browsing(runs) as pilot:
        await until_async(lambda: shows(pilot, "runs", 2))
        await pilot.press("down", "enter")
        await until_async(lambda: shows(pilot, "rollouts", 1))
        await pilot.press("2", "enter")
        await until_async(lambda: "a*b]" in pilot.app.screen.query_one("#search", Input).value)
        await until_async(lambda: shows(pilot, "rollouts", 1))
        assert "[bold]<script>" in cells(pilot, "rollouts")[0][-1]
        await pilot.press("enter")
        await until_async(lambda: "[bold]<script>" in said(pilot, "conversation"))
        assert "\x1b" not in said(pilot, "conversation")


async def test_a_run_that_grows_is_followed(runs, tmp_path):
    lines = (runs / "first" / "rollouts.jsonl").read_bytes().splitlines(keepends=True)
    growing = tmp_path / "growing"
    growing.mkdir()
    (growing / "rollouts.jsonl").write_bytes(lines[0])
    async with browsing(growing) as pilot:
        await until_async(lambda: cells(pilot, "runs")[0][4] == "1")
        with (growing / "rollouts.jsonl").open("ab") as file:
            file.writelines(lines[1:])
        await until_async(lambda: cells(pilot, "runs")[0][4] == str(len(lines)))


def test_a_long_text_is_cut_and_says_so():
    row = {"outcome": "completed", "reward": 1.0, "responses_create_params": {"input": "x" * (MAX_TEXT + 7)}}
    assert "… (7 characters more)" in conversation(row, 80).plain


@pytest.mark.parametrize(("arguments", "why"), [(["--json"], "Leave N"), ([], "needs a terminal")])
def test_browsing_without_a_terminal_is_refused_in_one_line(runs, arguments, why):
    ended = CliRunner().invoke(command_line(), ["show", str(runs), "--browse", *arguments])
    assert isinstance(ended.exception, UserError)
    assert why in str(ended.exception)


def test_ludus_browse_is_the_same_command(runs, tmp_path):
    for path, why in ((runs, "needs a terminal"), (tmp_path / "none", "does not exist")):
        ended = CliRunner().invoke(command_line(), ["browse", str(path)])
        assert isinstance(ended.exception, UserError)
        assert why in str(ended.exception)


async def test_deleted_and_damaged_runs_do_not_end_the_browser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("ludus.view.live.SEARCH_EVERY", 0.0)
    for name in ("one", "three", "two"):
        write_run(tmp_path / name, tasks=2, repeats=1)
    async with Browser([tmp_path]).run_test(size=(38, 12)) as pilot:
        await until_async(lambda: shows(pilot, "runs", 3) and all(row[4] == "2/2" for row in cells(pilot, "runs")))
        (tmp_path / "two" / "view.sqlite").write_bytes(b"no index " * 1000)
        await until_async(lambda: deleted(tmp_path / "one"))
        await pilot.press("enter")  # the run may have left the list, or not yet
        await until_async(lambda: len(pilot.app.runs.runs) == 2)  # type: ignore[attr-defined]
        if not pilot.app.screen.query("#runs"):
            await pilot.press("escape")
        await until_async(lambda: [row[0][-3:] for row in cells(pilot, "runs")] == ["ree", "two"])
        assert {row[3] for row in cells(pilot, "runs")} == {"ended"}
        await pilot.press("end", "enter")
        await until_async(lambda: shows(pilot, "rollouts", 2))


async def test_a_paused_run_is_called_paused(tmp_path: Path):
    folder = write_run(tmp_path / "one", tasks=2, repeats=1)
    (folder / "control.json").write_text('{"paused": true}')
    with being_written(folder):
        async with browsing(tmp_path) as pilot:
            await until_async(lambda: [row[3] for row in cells(pilot, "runs")] == ["paused"])
