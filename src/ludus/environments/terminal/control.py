"""A control for a test script: what it does in a box without an agent, with the task's own solution."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ludus.environments.terminal.boxes import contents, write_files
from ludus.environments.terminal.settings import filled


@dataclass(frozen=True)
class Control:
    """What a test script does in a box without an agent."""

    misses_network: str | None  #: what it says for want of a network; None if it passes
    rewarded: bool  #: whether it writes a reward after the task's own solution
    needs_own_box: str | None  #: what the task's own solution changed and a fresh box lacks, if that costs its reward


async def control_of(session: Any) -> Control:
    """Judge the task's own solution, or an untouched box if the task has none."""
    parts = [step.get("solution") or {} for step in session.task.steps[: session.step + 1]] or [session.task.solution]
    sandbox = await session.opened(session.task)
    try:
        for number, solution in enumerate(map(contents, parts)):
            if number:
                await session.lay_out(session.task, sandbox, number)
            if "solve.sh" in solution:
                env = filled(session.settings.solution.env, session.config.host_env)
                await write_files(sandbox, solution, f"{session.box.root}solution")
                await sandbox.exec(["bash", "/solution/solve.sh"], timeout=600, cwd=session.box.workdir, env=env)
        judged, needs = await session.judge.judge(sandbox), None
        solved = all("solve.sh" in part for part in parts)
        if solved and judged.left_out and not judged.passed:
            here = await session.judge.judge_here(sandbox)
            needs = examples(judged.left_out) if here.rewards and here.rewards != judged.rewards else None
    finally:
        await sandbox.close()
    misses = None if judged.passed else judged.misses_network
    return Control(misses, solved and judged.rewards is not None, needs)


def examples(paths: Sequence[str]) -> str:
    """Some paths, and how many more there are."""
    more = f" and {len(paths) - 2} more" if len(paths) > 2 else ""
    return f"{', '.join(path[:120] for path in paths[:2])}{more}"
