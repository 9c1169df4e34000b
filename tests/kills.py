"""Helpers of the kill tests: a collection in a process of its own that is killed at a chosen moment and resumed."""

from __future__ import annotations

import os
import random
import signal
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import forked
import orjson
from waiting import until

#: How often the slow tests kill. LUDUS_KILLS=30 kills ten times as often.
MOMENTS = int(os.environ.get("LUDUS_KILLS", "3"))

TURNS = 10
TRAJECTORY = ["function_call", "function_call_output"] * (TURNS - 1) + ["message"]

RESOURCES = """
import random
from typing import Any

from ludus import Resources, Response, tool


class Sums(Resources):
    async def open(self, task: Any) -> None:
        self.total, self.generator = 0, random.Random(self.seed)

    @tool
    async def add(self, number: int) -> str:
        \"\"\"Add a number.\"\"\"
        self.total += number
        return f"{self.total} {self.generator.randrange(1000)}"

    async def verify(self, task: Any, response: Response) -> float:
        return self.total / 1000
"""

MODEL = """
import asyncio
import os

LOG = os.open("LOG_FILE", os.O_WRONLY | os.O_CREAT | os.O_APPEND)


async def respond(request):
    os.write(LOG, f"{request.session} {request.turn} {os.getpid()}\\n".encode())
    await asyncio.sleep(0.02 * (2 + request.seed % 3))  # longer than it takes until a turn is written
    if request.turn + 1 < TURNS:
        return {"call": "add", "arguments": {"number": request.turn + request.seed % 3}}
    return f"done {request.seed}"
""".replace("TURNS", str(TURNS))


#: Drives a rollout from outside, as the agent `command` lets it: it asks the model and runs the tool `add`.
PROGRAM = """
import json, os, sys, urllib.request

def post(url, key, body):
    headers = {"Authorization": f"Bearer {key}"}
    return urllib.request.urlopen(urllib.request.Request(url, body, headers)).read().decode()

asked = json.load(sys.stdin)
items = asked["input"]
while True:
    body = json.dumps({"model": "any", "input": items, "tools": asked["tools"]}).encode()
    answer = post(os.environ["OPENAI_BASE_URL"] + "/responses", os.environ["OPENAI_API_KEY"], body)
    output = json.loads(answer)["output"]
    items += output
    calls = [item for item in output if item["type"] == "function_call"]
    for call in calls:
        url = os.environ["LUDUS_TOOLS_URL"] + "/" + call["name"]
        text = post(url, os.environ["LUDUS_TOOLS_KEY"], call["arguments"].encode())
        items.append({"type": "function_call_output", "call_id": call["call_id"], "output": text})
    if not calls:
        break
"""


class Killed:
    """A collection of `rollouts` rollouts of ten turns in a folder. `asked` is the log of all calls of the model."""

    def __init__(self, folder: Path, rollouts: int, *more: str, by_program: bool = False) -> None:
        self.folder, self.rollouts, self._more = folder, rollouts, more
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "resources.py").write_text(RESOURCES)
        (folder / "environment.yaml").write_text(
            f"name: sums\nresources: resources.py:Sums\nagent: {_agent(folder, by_program)}\n"
        )
        (folder / "answers.py").write_text(MODEL.replace("LOG_FILE", str(folder / "asked.log")))
        rows = ({"responses_create_params": {"input": f"row {number}"}} for number in range(rollouts))
        (folder / "rows.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))

    def start(self, *more: str) -> forked.Running:
        words = [sys.executable, "-m", "ludus", "collect", str(self.folder), "--model", "scripted:answers:respond"]
        words += ["--input", "rows.jsonl", "--output", "out", "--concurrency", "6", *self._more, *more]
        with (self.folder / "stderr.log").open("ab") as stderr:
            return forked.start(words, cwd=self.folder, stderr=stderr)

    def finish(self, *more: str) -> None:
        process = self.start(*more)
        assert process.wait() == 0, (self.folder / "stderr.log").read_text()

    def kill_after(self, calls: int, *more: str) -> bool:
        """Run until so many calls were made, then kill -9 the process. False if the collection ended before."""
        wanted = len(self.asked) + calls
        process = self.start(*more)
        self.wait_for_calls(process, wanted)
        process.kill()
        process.wait()
        return process.returncode != 0

    def kill_the_driver(self, moments: int, calls: int) -> None:
        """Kill the driver so often, each time after at most so many calls more; resume to the end, and check."""
        chosen, resume = random.Random(moments), list[str]()
        for _ in range(moments):
            if not self.kill_after(chosen.randrange(1, calls), *resume):
                break
            resume = ["--resume"] if (self.folder / "out" / "run.json").exists() else []
        self.finish(*resume)
        self.check()

    def kill_workers_after(self, moments: list[int]) -> None:
        """Run to the end. Each time so many calls more were made, kill -9 the worker that made the last one."""
        self.kill_each_time(moments, self.kill_the_last_worker)

    def kill_each_time(self, moments: list[int], kill: Callable[[], object]) -> None:
        """Run to the end, and `kill` each time so many calls more were made."""
        process, wanted = self.start(), len(self.asked)
        for calls in moments:
            wanted += calls
            self.wait_for_calls(process, wanted)
            if process.poll() is None:
                kill()
        assert process.wait() == 0, (self.folder / "stderr.log").read_text()

    def kill_the_last_worker(self) -> bool:
        """Kill -9 the worker that made the last call of the model. False if it is gone already."""
        try:
            os.kill(self._lines()[-1][2], signal.SIGKILL)
        except ProcessLookupError:
            return False
        return True

    def wait_for_calls(self, process: forked.Running, wanted: int) -> None:
        """Wait until so many calls of the model were made, or the collection ended."""
        log = self.folder / "asked.log"
        until(lambda: (log.exists() and log.read_bytes().count(b"\n") >= wanted) or process.poll() is not None)

    @property
    def asked(self) -> list[tuple[str, int]]:
        """The rollout and the turn of every call of the model, in the order in which they began."""
        return [(name, turn) for name, turn, _ in self._lines()]

    def _lines(self) -> list[tuple[str, int, int]]:
        log = self.folder / "asked.log"
        lines = log.read_text().splitlines() if log.exists() else []
        return [(name, int(turn), int(pid)) for name, turn, pid in (line.split() for line in lines)]

    def records(self) -> dict[str, Any]:
        """The recorded rollouts by id. None is there twice, and none failed."""
        folder = self.folder / "out"
        rows = [orjson.loads(line) for line in (folder / "rollouts.jsonl").read_bytes().splitlines()]
        assert (folder / "failures.jsonl").read_bytes() == b""
        assert not (folder / "turns.jsonl").exists()
        assert len(rows) == len({row["rollout_id"] for row in rows}) == self.rollouts
        return {row["rollout_id"]: row for row in rows}

    def check(self) -> None:
        """Every rollout is recorded once, as if nothing had happened, and no interruption cost more than a turn."""
        turns: dict[str, list[int]] = {}
        players: dict[str, list[int]] = {}
        for name, turn, pid in self._lines():
            playing = players.setdefault(name, [])
            if pid not in playing:
                playing.append(pid)
            if pid == playing[-1]:  # else it is an orphan of a dead node, whose turns nobody takes
                turns.setdefault(name, []).append(turn)
        for name, played in turns.items():
            assert all(after >= before - 1 for before, after in pairwise(played)), (name, played)
        for row in self.records().values():
            step = row["rollout_seed"] % 3
            assert row["reward"] == sum(turn + step for turn in range(TURNS - 1)) / 1000
            assert len(row["model_calls"]) == TURNS
            assert [item["type"] for item in row["response"]["output"]] == TRAJECTORY


def kill_beyond(size: int, journal: Path, process: forked.Running) -> bool:
    """Kill -9 a collection once its journal is larger than this. False if the collection ended before."""
    until(lambda: process.poll() is not None or (journal.exists() and journal.stat().st_size > size), every=0.002)
    killed = process.poll() is None
    process.kill()
    process.wait()
    return killed


def _agent(folder: Path, by_program: bool) -> str:
    """The agent of the environment: ours, or a program of its own."""
    if not by_program:
        return f"{{type: simple, max_steps: {TURNS}}}"
    (folder / "program.py").write_text(PROGRAM)
    return f"{{type: command, command: [{sys.executable}, {folder / 'program.py'}]}}"
