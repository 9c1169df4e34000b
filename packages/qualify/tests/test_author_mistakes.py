"""Qualification names the mistakes of an environment's author: in the verifier, in the tools and in `qualify.py`."""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path
from typing import Any

import forked
import pytest
from ludus_qualify.card import Card
from ludus_qualify.command import show_card
from ludus_qualify.run import qualify
from rich.console import Console
from waiting import CEILING

from ludus import Resources, Response, UserError, Verdict, tool

ROWS: list[dict[str, Any]] = [{"responses_create_params": {"input": "What is 1 + 2?"}, "expected_answer": "3"}]


class AlwaysCrashes(Resources):
    async def verify(self, task: Any, response: Response) -> float:
        raise KeyError("expected")


class MasksEveryAnswer(Resources):
    async def verify(self, task: Any, response: Response) -> Any:
        return Verdict(1.0, mask="not fit to train on")


class ToolAlwaysRaises(Resources):
    @tool
    def look_up(self, word: str) -> str:
        """Look up a word."""
        raise KeyError("no such table")

    async def verify(self, task: Any, response: Response) -> float:
        return float(response.output_text.strip(" $") == "3")


def shown(card: Card) -> str:
    console = Console(file=io.StringIO(), width=200)
    show_card(console, card)
    return console.file.getvalue()  # type: ignore[attr-defined]


def statuses(card: Card) -> dict[str, str]:
    return {check.name: check.status for check in card.checks}


@pytest.mark.parametrize("rows", [ROWS, [{"responses_create_params": {"input": "Hello."}}]])
def test_a_verifier_that_always_crashes_is_broken_and_not_unsound(rows: list[dict[str, Any]]):
    card = qualify(AlwaysCrashes, input=rows)
    assert card.verdict == "broken"
    found = statuses(card)
    assert found["every answer judged"] == "failed"
    unshown = ("exploits", "deterministic", "isolated", "no side effects", "false positives")
    assert {name: found[name] for name in unshown} == dict.fromkeys(unshown, "skipped")
    assert len(card.not_shown) >= len(unshown)
    assert "unsound" not in shown(card)


def test_policies_that_are_all_masked_show_nothing_about_exploits():
    card = qualify(MasksEveryAnswer, input=[{"responses_create_params": {"input": "Hello."}}])
    assert statuses(card)["exploits"] == "skipped"
    assert statuses(card)["deterministic"] == "ok"
    assert card.verdict == "not shown"


def test_exceptions_of_tools_are_named_beside_the_verdict():
    card = qualify(ToolAlwaysRaises, input=ROWS)
    (error,) = card.tool_errors
    assert error["tool"] == "look_up"
    assert "KeyError" in error["exception"]
    assert error["count"] > 0
    assert card.to_row()["tool_errors"] == card.tool_errors
    text = shown(card)
    assert error["in_right"] == 0
    count = error["count"]
    line = f"wrong answers and bad policies made tools raise {count} exceptions: {count} times look_up: KeyError"
    assert line in " ".join(text.split())
    assert "test_author_mistakes.py" in text


def test_a_card_without_exceptions_of_tools_does_not_mention_them():
    card = qualify("mcqa", limit=2)
    assert card.tool_errors == []
    assert "exceptions" not in shown(card)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "environment.yaml").write_text("name: three\nresources: resources.py:Three\n")
    (tmp_path / "resources.py").write_text(
        "from ludus import Resources\n\n\nclass Three(Resources):\n"
        "    async def verify(self, task, response):\n        return float(response.output_text == '3')\n"
    )
    (tmp_path / "rows.jsonl").write_text(json.dumps(ROWS[0]) + "\n")
    return tmp_path


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("\ndef gold():\n    return '3'\n", r"qualify\.py:2: TypeError: .*gold\(\) takes 0 positional"),
        ("def gold(task):\n    return task.expected\n", r"qualify\.py:2: AttributeError: .*expected"),
        ("def _f(task):\n    return task['x']\ndef oracle(task):\n    return _f(task)\n", r"qualify\.py:2: TypeError"),
        ("def answer(task):\n    return '3'\n", r"qualify\.py:1: TypeError: .*answer\(\)"),
        ("def options(task):\n    return 5\n", r"qualify\.py:1: options\(task\) must return a list"),
        ("def chance(task):\n    return 'often'\n", r"qualify\.py:1: chance\(task\) must return a number"),
        ("def exploits(task):\n    return ['x']\n", r"qualify\.py:1: exploits\(task\) must return a dict"),
        ("def breaking(task):\n    yield 1 / 0\n", r"qualify\.py:2: ZeroDivisionError"),
        ("def chance(task):\n    return float('nan')\n", r"qualify\.py:1: chance\(task\) .* returned nan"),
        ("def gold(task):\n    return {'a': 3}\n", r"qualify\.py:1: gold\(task\) must return a text.* \{'a': 3\}"),
        ("def oracle(task):\n    return [['3']]\n", r"qualify\.py:1: oracle\(task\) .* not list"),
        ("def program(task, source):\n    return {'code': source}\n", r"qualify\.py:1: program\(task, source\)"),
        (
            "\ndef breaking(task):\n    return {'late': [{'calls': 'x' * 90 + 'END'}]}\n",
            r"qualify\.py:2: breaking\(task\) .*: late: calls must be a list .*x{90}END",
        ),
        ("import os\ngold = '3'\n", r"qualify\.py:2: gold must be a function, and is '3'"),
        ("\nsettings = ['x'] * 30 + ['END']\n", r"qualify\.py:2: settings must be a dict, and is \[.* 'END'\]"),
        (
            "expected_exploits = {'empty': 1.0}\n",
            r"qualify\.py:1: expected_exploits\['empty'\] must be \(limit, reason\), and is 1\.0",
        ),
    ],
)
def test_a_mistake_in_qualify_py_is_an_error_with_its_place(folder: Path, code: str, says: str):
    (folder / "qualify.py").write_text(code)
    with pytest.raises(UserError, match=says) as refused:
        qualify(folder, input=folder / "rows.jsonl")
    assert len(str(refused.value).splitlines()) == 1


def test_an_accepted_wrong_answer_is_shown_to_its_end_with_the_line_of_its_hook(folder: Path):
    long = "the sum of one and two is " + "well, " * 30
    (folder / "resources.py").write_text(
        "from ludus import Resources\n\n\nclass Three(Resources):\n"
        "    async def verify(self, task, response):\n        return float('3' in response.output_text)\n"
    )
    (folder / "qualify.py").write_text(f"\n\ndef breaking(task):\n    return {{'late': {long!r} + '33'}}\n")
    reason = next(check.reason for check in qualify(folder, input=ROWS).checks if check.name == "false positives")
    assert reason.endswith("well, 33")
    assert f"late ({folder / 'qualify.py'}:3): the sum of one" in reason


def test_the_command_reports_a_mistake_in_qualify_py_in_one_line(folder: Path):
    (folder / "qualify.py").write_text("def gold():\n    return '3'\n")
    words = [sys.executable, "-m", "ludus", "qualify", str(folder), "--input", str(folder / "rows.jsonl")]
    variables = {**os.environ, "NO_COLOR": "1", "COLUMNS": "120"}
    done = forked.run(words, capture_output=True, text=True, env=variables, timeout=CEILING)
    assert done.returncode == 2, done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert f"{folder / 'qualify.py'}:1: TypeError" in done.stderr
