"""What `ludus harness check` finds out about a program: does it start, call the model, run a command, and end.

The program plays one rollout with a scripted model. The token ids of that model are characters, so that the lengths of
the program's prompts are known without a tokenizer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ludus.agents.harness.agent import HarnessAgent
from ludus.agents.harness.declaration import Declaration
from ludus.environment import Environment
from ludus.outcome import Verdict
from ludus.response import Response, texts_of
from ludus.rollout import Rollout
from ludus.sandbox.resources import SandboxResources
from ludus.task import Task
from ludus.thread import MAIN, TRAINED, ThreadKind

#: The task of a check, and the commands that the scripted model runs.
PROMPT = "Append the line hi to the file hello.txt."
ROW = {"responses_create_params": {"input": PROMPT}}
COMMANDS = ("echo hi >> hello.txt",) * 2

_NOT_ASKED = "the model was not asked the task: does `prompt` say where the program reads it?"
_ONE = "one training sequence"
_LEFT = "ls -A . | grep -vx hello.txt; ls -A /tmp"


class HelloFile(SandboxResources):
    """Wants a file whose lines are all `hi`. The verdict holds what else the program left."""

    async def verify(self, task: Task, response: Response) -> Verdict:
        """Look at the file, and at what lies beside it."""
        content = await self.sandbox.read_if_there("hello.txt")
        lines = (content or b"").decode(errors="replace").split()
        left = (await self.sandbox.exec(_LEFT)).text.split()
        return Verdict(float(bool(lines) and set(lines) == {"hi"}), lines=len(lines), left=left)


@dataclass(frozen=True)
class ThreadFigures:
    """One conversation of the program: its calls, and what they hold."""

    thread: str
    kind: ThreadKind
    calls: int
    items: int
    tools: int
    characters: int
    sequences: int


@dataclass(frozen=True)
class HarnessReport:
    """The result of a check: for each question the answer, or what is wrong."""

    harness: str
    answers: dict[str, tuple[bool, str]]
    threads: list[ThreadFigures]
    seconds: float

    @property
    def passed(self) -> bool:
        """Whether every answer is as it should be."""
        return all(good for good, _ in self.answers.values())


def checked_environment(name: str) -> Environment:
    """The environment of a check: a folder, and the harness as its agent."""
    environment = Environment.load(HelloFile)
    return replace(environment, agent=HarnessAgent(HarnessAgent.Config(name=name)))


def report_on(rollout: Rollout, declaration: Declaration) -> HarnessReport:
    """What a rollout with the scripted model says about the program."""
    threads = figures(rollout) if rollout.calls or rollout.threads else []
    calls = sum(thread.calls for thread in threads)
    values: dict[str, Any] = dict(rollout.verdict.values) if rollout.verdict is not None else {}
    cause = str(rollout.error) if rollout.error is not None else "the rollout stopped: " + str(rollout.stop_reason)
    ended = rollout.error is None and rollout.stop_reason == "completed"
    kept = sum(thread.sequences for thread in threads if thread.thread == MAIN)
    asked = rollout.response is not None and any(PROMPT in texts_of(item) for item in rollout.response.output)
    answers = {
        "calls the model": (calls > 0, f"{calls} calls" if calls > 1 else "1 call" if calls else cause),
        "speaks its dialect": _dialect(rollout, declaration.dialect) or (False, cause),
        "reads the prompt": (asked, "the model was asked the task" if asked else _NOT_ASKED if calls else cause),
        "runs commands": (rollout.reward == 1.0, "hello.txt is there" if rollout.reward == 1.0 else _no_file(values)),
        "ends by itself": (ended, f"stop reason {rollout.stop_reason}" if ended else cause),
        "leaves nothing else": (not values.get("left"), ", ".join(values.get("left", [])) or "no other file"),
        "keeps its history": (kept == 1, "its calls are " + (f"{kept} training sequences" if kept != 1 else _ONE)),
    }
    return HarnessReport(declaration.label, answers, threads, rollout.timings.get("agent", 0.0))


def figures(rollout: Rollout) -> list[ThreadFigures]:
    """The conversations of a rollout with their sizes, the main one first."""
    parts = list(rollout.sequences((*TRAINED, "side")))
    response = rollout.response
    main = (MAIN, "main", rollout.calls, response.output if response else [], response.tools or [] if response else [])
    others = [(thread.name, thread.kind, thread.calls, thread.items, thread.tools) for thread in rollout.threads]
    listed: list[Any] = [main, *others]
    return [
        ThreadFigures(name, kind, len(calls), len(items), len(tools), sum(len(part.ids) for part in own), len(own))
        for name, kind, calls, items, tools in listed
        for own in [[part for part in parts if part.thread == name]]
    ]


def _dialect(rollout: Rollout, declared: str) -> tuple[bool, str] | None:
    """Whether the program called the routes of the declared dialect; None if nobody knows."""
    called = (rollout.response.data.get("metadata") or {}).get("dialects") if rollout.response is not None else None
    if not called:
        return None
    if declared in called.split(", "):
        return True, f"the program called {called}"
    return False, f"the program called {called}, not {declared}: write `dialect: {called}`"


def _no_file(values: dict[str, Any]) -> str:
    if not values:
        return "the rollout has no verdict"
    if values.get("lines"):
        return "hello.txt holds other lines"
    return "there is no hello.txt: does `shell` in the declaration name the right tool?"
