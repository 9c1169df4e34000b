"""Helpers of the tests of `--workers`: an environment in a folder, which its rows tell what to do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import forked
import orjson

import ludus
from ludus.collection.collection import Collection

RESOURCES = """
import asyncio
import contextlib
import os
import signal
import time
from pathlib import Path

import ludus
from ludus.collection.collection import Collection
from ludus import Resources, Response, Verdict, tool

HERE = Path(__file__).parent


class Acts(Resources):
    class Task(ludus.Task):
        act: str = ""

    @classmethod
    @contextlib.asynccontextmanager
    async def share(cls, config):
        if (HERE / "broken").exists():
            raise OSError("gone")
        with (HERE / "shared.log").open("a") as log:
            log.write(f"{os.getpid()}\\n")
        yield None
        with (HERE / "unshared.log").open("a") as log:
            log.write(f"{os.getpid()}\\n")

    async def open(self, task: Task) -> None:
        self.total = 0
        (HERE / f"open-{os.getpid()}-{id(self)}").touch()

    @tool
    async def add(self, number: int) -> int:
        \"\"\"Add a number.\"\"\"
        self.total += number
        if number < 0:
            raise ValueError("negative")
        return self.total

    async def verify(self, task: Task, response: Response) -> Verdict:
        at_once = len(list(HERE.glob("open-*")))
        if task.act == "crowd" and at_once > 3:
            raise RuntimeError(f"{at_once} sessions are open")
        if task.act == "die" or (task.act == "die_once" and not (HERE / "died").exists()):
            (HERE / "died").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if task.act == "wait":
            (HERE / "waiting").touch()
            while not (HERE / "go").exists():
                await asyncio.sleep(0.01)
        if task.act == "block":
            (HERE / "blocking").touch()
            while not (HERE / "go").exists():
                time.sleep(0.01)
        if task.act == "fail":
            raise RuntimeError("no verdict")
        mask = "not fit" if task.act == "mask" else None
        return Verdict(self.total / 7, components={"sum": self.total}, mask=mask, total=self.total, text="x")

    async def close(self) -> None:
        for path in HERE.glob(f"open-{os.getpid()}-{id(self)}"):
            path.unlink()
"""

GROUPED = """

class Grouped(Acts):
    verify = Resources.verify

    async def verify_group(self, task, responses):
        if task.act == "die_once" and not (HERE / "died").exists():
            (HERE / "died").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return [Verdict(len(response.output_text) / 10, among=len(responses)) for response in responses]
"""

MODEL = """
async def respond(request):
    if request.turn == 0:
        return {"call": "add", "arguments": {"number": request.seed % 9 - 1}}
    return "x" * (request.seed % 10)
"""


def environment(folder: Path, grouped: bool = False) -> Path:
    """Write the environment and its model into a folder."""
    name = "Grouped" if grouped else "Acts"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "resources.py").write_text(RESOURCES + (GROUPED if grouped else ""))
    settings = f"name: acts\nresources: resources.py:{name}\nreward_range: [-1000, 1000]\n"
    (folder / "environment.yaml").write_text(settings)
    (folder / "answers.py").write_text(MODEL)
    return folder


def rows(count: int, *acts: str) -> list[dict[str, Any]]:
    """Rows; the first ones do the acts."""
    wanted = [*acts, *[""] * (count - len(acts))]
    return [{"responses_create_params": {"input": f"row {n}"}, "act": act} for n, act in enumerate(wanted)]


def run(folder: Path, output: str, **options: Any) -> Collection:
    """Collect with the model of the folder."""
    given = {"model": "scripted:answers:respond", "output": folder / output, **options}
    return ludus.collect(str(folder), **given)


def recorded(folder: Path, name: str = "rollouts.jsonl") -> dict[str, Any]:
    """The rows of a journal by rollout id, without times. No rollout is there twice."""
    found = [orjson.loads(line) for line in (folder / name).read_bytes().splitlines()]
    assert len({row["rollout_id"] for row in found}) == len(found)
    return {row["rollout_id"]: {key: value for key, value in row.items() if key != "timings"} for row in found}


def metrics(folder: Path) -> dict[str, Any]:
    """The metrics without times and in a fixed order."""
    found: dict[str, Any] = orjson.loads((folder / "metrics.json").read_bytes())
    for name in ("seconds", "loop", "workers", "warnings", "checkpoints"):
        del found[name]
    for each in found["environments"].values():
        del each["seconds"]
    return {**found, "tasks": sorted(found["tasks"], key=lambda task: str(task["task_id"]))}


def pids(folder: Path) -> list[int]:
    """The processes that opened what is shared."""
    log = folder / "shared.log"
    return [int(line) for line in log.read_text().split()] if log.exists() else []


def command(folder: Path, count: int, *more: str) -> list[str]:
    """`ludus collect` with two workers. The folder's rows are written before."""
    return [
        *(sys.executable, "-m", "ludus", "collect", str(folder), "--model", "scripted:answers:respond"),
        *("--input", str(folder / "rows.jsonl"), "--output", str(folder / "out"), "--workers", str(count), *more),
    ]


def write_rows(folder: Path, given: list[dict[str, Any]]) -> None:
    """Write rows.jsonl."""
    (folder / "rows.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in given))


def finished(folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    return forked.run(command(folder, 2, *more), cwd=folder, capture_output=True, text=True)
