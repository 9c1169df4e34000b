"""`ludus chat`: a person plays the model or talks with one, and the session is always closed."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import termios
from pathlib import Path

import forked
import interruptible
import pytest
from rich.console import Console
from waiting import CEILING

from ludus.agents.typed_calls import Call, Mistyped, read_turn
from ludus.cli.chat_rollout import ChatScreen
from ludus.cli.keyboard import Keyboard

YAML = """
name: keeper
resources: resources.py:Keeper
agent: {type: simple, max_steps: 6}
datasets: [{name: example, path: rows.jsonl}]
"""
CODE = '''
import os
from ludus import Resources, tool, Verdict
import ludus

def log(line):
    with open(os.environ["KEEPER_LOG"], "a") as file:
        file.write(line + "\\n")

class Keeper(Resources):
    class Task(ludus.Task):
        goal: int

    async def open(self, task):
        log("opened")
        self.total = 0
        if task.goal < 0:
            raise RuntimeError("no such goal")

    @tool
    async def add(self, count: int, note: str = "") -> dict:
        """Add to the total."""
        self.total += count
        return {"total": self.total, "note": note}

    @tool
    def shout(self) -> str:
        """Answer with escape codes."""
        return "\\x1b[2J\\x1b]0;owned\\x07[red]loud[/red]"

    async def verify(self, task, response):
        return Verdict(float(self.total == task.goal), answer=response.output_text)

    async def close(self):
        log("closed")
'''
ROWS = [
    {"responses_create_params": {"input": "Bring the total to 5."}, "goal": 5},
    {"responses_create_params": {"input": "Bring the total to 7."}, "goal": 7},
    {"responses_create_params": {"input": "Impossible."}, "goal": -1},
]
SCRIPT = """
- {reasoning: I had better add, call: add, arguments: {count: 5}}
- "Done, it is 5.\\e[31m [bold]x[/bold]"
- As I said.
"""


@pytest.fixture
def keeper(tmp_path: Path) -> Path:
    """The folder of an environment that logs when it is opened and closed."""
    (tmp_path / "environment.yaml").write_text(YAML)
    (tmp_path / "resources.py").write_text(CODE)
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    (tmp_path / "script.yaml").write_text(SCRIPT)
    return tmp_path


def command(folder: Path, *arguments: str) -> tuple[list[str], dict[str, str]]:
    variables = {key: value for key, value in os.environ.items() if key not in ("FORCE_COLOR", "NO_COLOR", "COLUMNS")}
    variables |= {"KEEPER_LOG": str(folder / "log"), "PYTHONIOENCODING": "utf-8", "TERM": "xterm"}
    return [sys.executable, "-m", "ludus", "chat", *arguments], variables


def chat(folder: Path, typed: str, *arguments: str, env: str | None = None) -> subprocess.CompletedProcess[str]:
    words, variables = command(folder, env or str(folder), *arguments)
    return forked.run(
        words, input=typed, capture_output=True, text=True, env=variables, cwd=folder, timeout=300, encoding="utf-8"
    )


def log(folder: Path) -> list[str]:
    return (folder / "log").read_text().split() if (folder / "log").exists() else []


def test_a_person_plays_the_model(keeper: Path):
    done = chat(keeper, "add count=2\nadd count=3 note='two words'\nIt is 5 now.\n")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[:2] == ["user", "  Bring the total to 5."]
    assert "tools: add(count, note?), shout()" in lines
    assert '  {"total": 2, "note": ""}' in lines
    assert '  {"total": 5, "note": "two words"}' in lines
    assert "completed, reward 1" in lines
    assert "  answer: It is 5 now." in lines
    assert log(keeper) == ["opened", "closed"]
    assert "\x1b" not in done.stdout


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        ("Look:\n", "Look:"),
        (
            "```python\ndef f():\n\n    return 1\n/verify\n```\nmore\n",
            "```python\ndef f():\n\n    return 1\n/verify\n```",
        ),
        ("~~~~\n~~~\n```\n~~~~\n", "~~~~\n~~~\n```\n~~~~"),
        ("one\\\ntwo\\\n  three\n", "one\ntwo\n  three"),
        ("here: \\\n```\nx \\\n```\n", "here: \n```\nx \\\n```"),
        ("/paste\n  add count=1\n\n/verify\n/end\n", "  add count=1\n\n/verify"),
        ("/paste\n/end\nshort\n", "short"),
        ("```\nnever closed\n", "```\nnever closed"),
    ],
)
async def test_an_answer_can_have_several_lines(typed: str, answer: str):
    lines = iter(typed.split("\n")[:-1])

    class Typed(Keyboard):
        async def line(self, prompt: str) -> str | None:
            return next(lines, None)

    screen = ChatScreen(Console(), Typed(), {}, as_model=True)
    text = await screen.read()
    assert text is not None
    assert read_turn(text, [{"name": "add"}]) == answer


def test_invalid_calls_get_the_errors_that_a_model_would_get(keeper: Path):
    typed = "/call nothing {}\n/call verify\n/call add {oops\nadd count=many\n/verify\n"
    done = chat(keeper, typed)
    assert done.stdout.count("Not Found") == 2
    assert "Invalid tool call arguments" in done.stdout
    assert "int_type" in done.stdout or "int_parsing" in done.stdout
    assert "completed, reward 0" in done.stdout
    assert "stopped: ended_by_hand" in done.stdout


def test_a_mistyped_tool_is_asked_about_and_the_rollout_goes_on(keeper: Path):
    done = chat(keeper, "ad count=5\nadd count=5\n/say ad is done\n")
    assert "there is no tool ad: did you mean add?" in done.stdout
    assert "  answer: ad is done" in done.stdout
    assert "completed, reward 1" in done.stdout


def test_slash_commands_do_not_count_as_turns(keeper: Path):
    done = chat(keeper, "/help\n/tools\n/task\n/nonsense\n/call\n\n   \nadd count=5\n/say add is done\n")
    assert "/verify" in done.stdout
    assert "Add to the total." in done.stdout
    assert '{"goal": 5}' in done.stdout
    assert "unknown command /nonsense" in done.stdout
    assert "write /call NAME" in done.stdout
    assert "  answer: add is done" in done.stdout
    assert "completed, reward 1" in done.stdout


def test_max_steps_ends_the_rollout_and_the_last_output_is_shown(keeper: Path):
    done = chat(keeper, "add count=4\nadd count=1\nnever read\n", "--set", "agent.max_steps=2")
    assert '"total": 5' in done.stdout
    assert "never read" not in done.stdout
    assert "stopped: max_steps" in done.stdout


@pytest.mark.parametrize("typed", ["", "add count=5\n", "add count=5"])
def test_end_of_input_gives_the_verdict(keeper: Path, typed: str):
    done = chat(keeper, typed)
    assert done.returncode == 0
    assert f"completed, reward {int(bool(typed))}" in done.stdout
    assert log(keeper) == ["opened", "closed"]


@pytest.mark.parametrize("arguments", [(), ("--model", "scripted:script.yaml")])
def test_quit_closes_the_session_without_a_verdict(keeper: Path, arguments: tuple[str, ...]):
    done = chat(keeper, "/quit\n", *arguments)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("left without a verdict; the session is closed\n")
    assert "reward" not in done.stdout
    assert log(keeper) == ["opened", "closed"]


def test_the_person_can_send_a_message_after_the_models_answer(keeper: Path):
    done = chat(keeper, "Are you sure?\n/verify\n", "--model", "scripted:script.yaml")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    titles = [line for line in lines if line in ("user", "reasoning", "call add", "output", "assistant")]
    assert titles == ["user", "reasoning", "call add", "output", "assistant", "assistant"]
    assert lines.index("you> Are you sure?") < lines.index("  As I said.")
    assert "completed, reward 1" in lines
    assert log(keeper) == ["opened", "closed"]


def test_every_message_is_answered_even_with_one_step_per_rollout(keeper: Path):
    (keeper / "talker.yaml").write_text("- One.\n- Two.\n- Three.\n")
    done = chat(keeper, "And?\nAnd?\n", "--model", "scripted:talker.yaml", "--set", "agent.max_steps=1")
    assert done.returncode == 0, done.stderr
    said = [
        line.strip() for line in done.stdout.splitlines() if line.strip() in ("you> And?", "One.", "Two.", "Three.")
    ]
    assert said == ["One.", "you> And?", "Two.", "you> And?", "Three."]
    assert "max_steps" not in done.stdout


def test_each_message_gets_max_steps_steps(keeper: Path):
    (keeper / "caller.yaml").write_text("- {call: add, arguments: {count: 1}}\n")
    done = chat(keeper, "Again.\n", "--model", "scripted:caller.yaml", "--set", "agent.max_steps=2")
    assert done.stdout.count("call add") == 4
    assert done.stdout.count("the agent stopped: max_steps") == 2


def test_a_model_plays_alone_if_nothing_is_typed(keeper: Path):
    done = chat(keeper, "", "--model", "scripted:script.yaml", "--row", "2")
    assert "Bring the total to 7." in done.stdout
    assert "completed, reward 0" in done.stdout


def test_escape_codes_of_models_and_tools_do_not_reach_the_terminal(keeper: Path):
    for done in (chat(keeper, "", "--model", "scripted:script.yaml"), chat(keeper, "shout\n\x1b[31mme\n")):
        assert "\x1b" not in done.stdout
        assert "\x07" not in done.stdout
        assert "␛[" in done.stdout
        assert "[/" in done.stdout


def test_a_failed_rollout_shows_stage_kind_and_cause(keeper: Path):
    (keeper / "down.yaml").write_text("- error: {kind: http_500, cause: the server is on fire}\n")
    done = chat(keeper, "", "--model", "scripted:down.yaml")
    assert done.returncode == 1
    assert "failed in model: http_500\n  the server is on fire" in done.stdout
    assert "reward" not in done.stdout
    done = chat(keeper, "", "--row", "3")
    assert done.returncode == 1
    assert "failed in open: crash\n  RuntimeError: no such goal" in done.stdout
    assert log(keeper) == ["opened", "closed"] * 2


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--row", "9"], "has no row 9. Choose --row from 1 to 3"),
        (
            ["--input", "empty.jsonl"],
            "empty.jsonl holds no rows. Write one JSON object a line into it, or name another file with --input FILE",
        ),
        (["--input", "bad.jsonl"], "bad.jsonl:1: goal is missing"),
        (["--input", "none.jsonl"], "cannot read none.jsonl: No such file"),
        (["--model", "skripted:x"], "unknown model skripted:x"),
        (["--set", "model.temperature=1"], "--set model.temperature needs a model. Name one with --model"),
        (["--set", "agent.max_stps=1"], "Did you mean max_steps?"),
    ],
)
def test_a_user_error_is_one_line(keeper: Path, arguments: list[str], error: str):
    (keeper / "empty.jsonl").write_text("")
    (keeper / "bad.jsonl").write_text('{"responses_create_params": {"input": "x"}}\n')
    done = chat(keeper, "", *arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    assert error in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert log(keeper) == []


def test_an_unknown_environment_gets_a_suggestion(keeper: Path):
    done = chat(keeper, "", env="example_session_state_mgm")
    assert done.returncode == 2
    assert "Did you mean example_session_state_mgmt?" in done.stderr


def test_ctrl_c_closes_the_session(keeper: Path):
    words, variables = command(keeper, str(keeper))
    process = interruptible.start(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=variables
    )
    assert any(b"You play the model" in line for line in iter(process.stdout.readline, b""))
    process.send_signal(signal.SIGINT)
    shown, errors = process.communicate(timeout=CEILING)
    assert process.returncode == 130
    assert shown.decode().endswith("left without a verdict; the session is closed\n")
    assert errors == b""
    assert log(keeper) == ["opened", "closed"]


def test_a_terminal_gets_colour_and_ctrl_d_gives_the_verdict(keeper: Path):
    with Terminal(keeper, str(keeper)) as terminal:
        terminal.expect("model> ")
        terminal.type("add count=5\n")
        terminal.expect('"total": 5')
        terminal.expect("model> ")
        terminal.type("\x04")
        shown = terminal.expect("ended_by_hand")
        assert terminal.process.wait(timeout=CEILING) == 0
        assert "\x1b[1;34muser\x1b[0m" in shown
        assert "\x1b[1;32mcompleted, reward 1" in shown


def test_ctrl_c_restores_the_terminal_settings(keeper: Path):
    with Terminal(keeper, str(keeper)) as terminal:
        before = termios.tcgetattr(terminal.inner)
        terminal.expect("model> ")
        terminal.type("half a li")
        terminal.expect("half a li")
        assert termios.tcgetattr(terminal.inner) != before  # readline changed them
        terminal.process.send_signal(signal.SIGINT)
        terminal.expect("the session is closed")
        assert terminal.process.wait(timeout=CEILING) == 130
        assert termios.tcgetattr(terminal.inner) == before
    assert log(keeper) == ["opened", "closed"]


class Terminal:
    """`ludus chat` on a pseudo terminal."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        words, variables = command(folder, *arguments)
        self.outer, self.inner = pty.openpty()
        self.process = interruptible.start(
            words, stdin=self.inner, stdout=self.inner, stderr=self.inner, env=variables, start_new_session=True
        )
        self.shown = ""
        self._read_to = 0

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *exc: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.outer)
        os.close(self.inner)

    def type(self, text: str) -> None:
        os.write(self.outer, text.encode())

    def expect(self, text: str) -> str:
        """Wait until a text appears after the last one that was expected."""
        while text not in self.shown[self._read_to :]:
            assert select.select([self.outer], [], [], CEILING)[0], f"no {text!r} in {self.shown!r}"
            self.shown += os.read(self.outer, 65536).decode("utf-8", "replace")
        self._read_to = self.shown.index(text, self._read_to) + len(text)
        return self.shown


TOOLS = [
    {
        "name": "find",
        "parameters": {"properties": {"code": {"type": "string"}, "count": {"type": "integer"}, "where": {}}},
    }
]


@pytest.mark.parametrize(
    ("line", "turn"),
    [
        ("find", Call("find", "{}")),
        ("find code=007 count=7", Call("find", '{"code": "007", "count": 7}')),
        ("find code='a b' where=[1,2]", Call("find", '{"code": "a b", "where": [1, 2]}')),
        ("find count=many", Call("find", '{"count": "many"}')),
        ("find code=a=b", Call("find", '{"code": "a=b"}')),
        ('find {"code": "x"}', Call("find", '{"code": "x"}')),
        ("find {broken", Call("find", "{broken")),
        ("find me if you can", "find me if you can"),
        ("find it's", "find it's"),
        ("lose code=1", "lose code=1"),
        ("/call lose code=1", Call("lose", '{"code": 1}')),
        ("/call find not json", Call("find", "not json")),
        ("/call", None),
        ("/say find code=1", "find code=1"),
        ("fnd code=1", Mistyped("fnd", "find")),
        ('fidn {"code": "x"}', Mistyped("fidn", "find")),
        ("finds", Mistyped("finds", "find")),
        ("fined for speeding", "fined for speeding"),
        ("/etc/passwd", "/etc/passwd"),
    ],
)
def test_a_typed_line_is_parsed_as_a_call_or_an_answer(line: str, turn: Call | Mistyped | str | None):
    assert read_turn(line, TOOLS) == turn
