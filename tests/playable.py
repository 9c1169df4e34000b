"""An environment to play by hand whose tools do everything a tool should not."""

from __future__ import annotations

import json
from pathlib import Path

_YAML = """\
name: trouble
description: Tools that raise, write a lot, or end the session.
resources: resources.py:Trouble
agent: {type: simple, max_steps: 20}
datasets: [{name: example, path: data.jsonl, license: Apache-2.0}]
"""
_RESOURCES = '''
import ludus
from ludus import Resources, Response, tool


class Trouble(Resources):
    """Two rows: the second one cannot be opened."""

    class Task(ludus.Task):
        opens: bool

    async def open(self, task: Task) -> None:
        if not task.opens:
            raise RuntimeError("the machine is on fire")

    @tool
    async def fail(self, why: str) -> str:
        """Raise an error."""
        raise ValueError(f"cannot do that: {why}")

    @tool
    async def write(self, characters: int) -> str:
        """Write a long text."""
        return "<b>x</b>" * (characters // 8)

    async def verify(self, task: Task, response: Response) -> float:
        return 1.0
'''


def write_trouble(folder: Path) -> str:
    """Write the environment and return its path."""
    folder.mkdir(parents=True)
    (folder / "environment.yaml").write_text(_YAML)
    (folder / "resources.py").write_text(_RESOURCES)
    rows = [{"responses_create_params": {"input": "Make trouble."}, "opens": opens} for opens in (True, False)]
    (folder / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(folder)
