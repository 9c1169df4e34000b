"""A control for a task: what its test script and its steps do in a box without an agent, after its own solution."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from ludus import Failure
from ludus.environments.terminal.boxes import contents, write_files
from ludus.environments.terminal.settings import filled
from ludus.sandbox import Sandbox, SandboxError


@dataclass(frozen=True)
class Control:
    """What a test script does in a box without an agent."""

    misses_network: str | None  #: what it says for want of a network; None if it passes
    rewarded: bool  #: whether it writes a reward after the task's own solution
    needs_own_box: str | None  #: what the task's own solution changed and a fresh box lacks, if that costs its reward


async def control_of(session: Any) -> Control:
    """Judge the task's own solution, or an untouched box if the task has none."""
    async with _solved(session, session.step + 1) as sandbox:
        judged, needs = await session.judge.judge(sandbox), None
        solved = all("solve.sh" in part for part in _solutions(session, session.step + 1))
        if solved and judged.left_out and not judged.passed:
            here = await session.judge.judge_here(sandbox)
            needs = examples(judged.left_out) if here.rewards and here.rewards != judged.rewards else None
    misses = None if judged.passed else judged.misses_network
    return Control(misses, solved and judged.rewards is not None, needs)


async def next_is_ready(session: Any, number: int) -> bool:
    """Bring what a step needs into the agent's box. False if only what the agent left prevents it."""
    try:
        if session.judge.fresh is None:
            await session.sandbox.exec(["sh", "-c", 'rm -rf "$1tests" "$1logs/verifier"', "sh", session.box.root])
        elif session.box.spec.image is not None:
            await session.box.prepare(session.sandbox)
        await session.lay_out(session.task, session.sandbox, number)
        await session.serve()
    except SandboxError:
        raise
    except OSError:
        return False
    except Failure:
        await session.end_servers()
        async with _solved(session, number) as clean:
            await session.lay_out(session.task, clean, number)
            if (servers := session.servers_in(clean)) is not None:
                try:
                    await servers.open(session.task)
                finally:
                    await servers.close()
        return False
    return True


def _solutions(session: Any, count: int) -> list[Mapping[str, bytes]]:
    """The task's own solution of each of its first steps."""
    parts = [step.get("solution") or {} for step in session.task.steps[:count]] or [session.task.solution]
    return [contents(part) for part in parts]


@asynccontextmanager
async def _solved(session: Any, count: int) -> AsyncIterator[Sandbox]:
    """A box without an agent, after the task's own solution of its first steps."""
    sandbox = await session.opened(session.task)
    try:
        for number, solution in enumerate(_solutions(session, count)):
            if number:
                await session.lay_out(session.task, sandbox, number)
            if "solve.sh" in solution:
                env = filled(session.settings.solution.env, session.config.host_env)
                await write_files(sandbox, solution, f"{session.box.root}solution")
                await sandbox.exec(["bash", "/solution/solve.sh"], timeout=600, cwd=session.box.workdir, env=env)
        yield sandbox
    finally:
        await sandbox.close()


def examples(paths: Sequence[str]) -> str:
    """Some paths, and how many more there are."""
    more = f" and {len(paths) - 2} more" if len(paths) > 2 else ""
    return f"{', '.join(path[:120] for path in paths[:2])}{more}"
