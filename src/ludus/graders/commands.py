"""A model's shell commands: run in a sandbox, and shown to the model."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

from ludus.sandbox.protocol import Sandbox

#: The model reads this much of a command's output.
SHOWN = 16_000


class Commands:
    """The shell commands of one session, one after another.

    A command's seconds count from its call, so all calls of one turn end within the seconds of one command. A model
    that asks for many slow commands at once could pass the deadline of its tools, and so escape its verdict.
    """

    def __init__(self) -> None:
        self._turn = asyncio.Lock()

    async def run(
        self, sandbox: Sandbox, command: str, *, folder: str, seconds: float, env: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """Run a command in a new shell. Returns how it ended and its output: if long, the beginning and the end."""
        deadline = time.monotonic() + seconds
        async with self._turn:
            left = deadline - time.monotonic()
            if left <= 0:
                return {"output": f"The commands of this turn took {seconds:.0f} s together.", "ended": "not started"}
            ended = await sandbox.exec(["bash", "-c", command], timeout=left, cwd=folder, env=env)
        text = (ended.stdout + ended.stderr).decode(errors="replace")
        if len(text) > SHOWN:
            half = SHOWN // 2
            text = f"{text[:half]}\n... {len(text) - SHOWN} characters left out ...\n{text[-half:]}"
        return {"output": text, "ended": ended.why}
