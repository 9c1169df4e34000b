"""What `ludus harness check` finds out about a program: does it start, call the model, run a command, and end.

The program plays one rollout with a scripted model. The token ids of that model are characters, so that the lengths of
the program's prompts are known without a tokenizer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ludus.agents.harness.agent import HarnessAgent
from ludus.agents.harness.declaration import Declaration
from ludus.environment import Environment
from ludus.limits import Limits
from ludus.model import Request
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

#: How long a check may take. A program that hangs would wait for an hour.
SECONDS = 300.0

_NOT_ASKED = "the model was not asked the task: does `prompt` say where the program reads it?"
_ONE = "its calls are one training sequence"
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
    return replace(environment, agent=HarnessAgent(HarnessAgent.Config(name=name)), limits=Limits(rollout=SECONDS))


def report_on(rollout: Rollout, declaration: Declaration, requests: Sequence[Request]) -> HarnessReport:
    """What a rollout with the scripted model, which got the `requests`, says about the program."""
    threads = figures(rollout) if rollout.calls or rollout.threads else []
    calls = sum(thread.calls for thread in threads)
    values: dict[str, Any] = dict(rollout.verdict.values) if rollout.verdict is not None else {}
    metadata = (rollout.response.data.get("metadata") or {}) if rollout.response is not None else {}
    cause = f"the rollout stopped: {rollout.stop_reason}{metadata.get('program_error', '')}"
    cause = str(rollout.error) if rollout.error is not None else cause
    unknown = cause if calls else "not known without a call"
    ended = rollout.error is None and rollout.stop_reason == "completed"
    kept = sum(thread.sequences for thread in threads if thread.thread == MAIN)
    asked = any(PROMPT in texts_of(item) for request in requests for item in request.input)
    wrote, left = rollout.reward == 1.0, ", ".join(values.get("left", ()))
    answers = {
        "calls the model": (calls > 0, f"{calls} calls" if calls > 1 else "1 call" if calls else cause),
        "speaks its dialect": _dialect(metadata.get("dialects"), declaration.dialect) or (False, unknown),
        "reads the prompt": (asked, "the model was asked the task" if asked else _NOT_ASKED if calls else unknown),
        "runs commands": (wrote, "hello.txt is there" if wrote else _no_file(rollout, values, declaration) or unknown),
        "ends by itself": (ended, f"stop reason {rollout.stop_reason}" if ended else unknown),
        "leaves nothing else": ("left" in values and not left, left or ("no other file" if values else unknown)),
        "keeps its history": (kept == 1, _ONE if kept == 1 else f"its calls are {kept} sequences" if kept else unknown),
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


def _dialect(called: str | None, declared: str) -> tuple[bool, str] | None:
    """Whether the program called the routes of the declared dialect; None if nobody knows."""
    if not called:
        return None
    if declared in called.split(", "):
        return True, f"the program called {called}"
    return False, f"the program called {called}, not {declared}: write `dialect: {called}`"


def _no_file(rollout: Rollout, values: dict[str, Any], declaration: Declaration) -> str | None:
    if not values or rollout.response is None:
        return None
    if values.get("lines"):
        return "hello.txt holds other lines"
    names = [str(tool.get("name")) for tool in rollout.response.tools or []]
    if not names:
        return "there is no hello.txt, and the program offers no tools: write `edit`, if it takes edits as text"
    if declaration.shell is not None and declaration.shell.tool in names:
        return f"there is no hello.txt, although the model called {declaration.shell.tool}: see `shell`"
    return f"there is no hello.txt: write `shell: {{tool: NAME}}`. The program offers: {', '.join(names)}"
