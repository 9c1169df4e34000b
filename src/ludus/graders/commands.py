"""A model's shell command: run in a sandbox, and shown to the model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ludus.sandbox.protocol import Sandbox

#: The model reads this much of a command's output.
SHOWN = 16_000


async def run_command(
    sandbox: Sandbox, command: str, *, folder: str, seconds: float, env: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Run a command in a new shell. Returns its output, the beginning and the end if it is long, and how it ended."""
    ended = await sandbox.exec(["bash", "-c", command], timeout=seconds, cwd=folder, env=env)
    text = (ended.stdout + ended.stderr).decode(errors="replace")
    if len(text) > SHOWN:
        half = SHOWN // 2
        text = f"{text[:half]}\n... {len(text) - SHOWN} characters left out ...\n{text[-half:]}"
    return {"output": text, "ended": ended.why}
