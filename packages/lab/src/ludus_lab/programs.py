"""What `proofs` and `verilog` share: the model's last fenced block is a program for a tool of the system.

Words that no honest program needs are refused before anything runs. Every run is in a sandbox made for it.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar

from ludus import Response
from ludus.graders.code_blocks import last_block
from ludus.sandbox import ExecResult, Sandbox
from ludus.sandbox.resources import SandboxResources
from ludus_lab.needs import require


class ProgramResources(SandboxResources):
    """No tools: the verifier runs the last fenced block of the final text."""

    #: What must not occur in a program.
    refused: ClassVar[re.Pattern[str]]

    @classmethod
    def share(cls, config: Any) -> Any:
        require(cls.__module__.rpartition(".")[0])
        return super().share(config)

    def read_program(self, response: Response) -> tuple[str, str | None]:
        """The program, and why it is not run; None if it is."""
        block = last_block(response.output_text)
        if block is None:
            return "", "no fenced block"
        if word := self.refused.search(block.code):
            return "", f"{word[0]:.40} is not allowed"
        return block.code, None

    async def new_box(self) -> Sandbox:
        """A fresh sandbox, to be closed by `async with`."""
        box: Sandbox = await self.shared.open(self.sandbox.spec)
        return box


async def run_in(box: Sandbox, files: dict[str, str], command: list[str], seconds: float) -> ExecResult:
    """Write the files and run the command."""
    for name, text in files.items():
        await box.write(name, text.encode(errors="replace"))
    return await box.exec(command, timeout=seconds)


def problem_of(ended: ExecResult) -> str:
    """How a command ended, with the beginning of its message."""
    if ended.exit_code is None:
        return ended.why
    return " ".join((ended.stderr or ended.stdout).decode(errors="replace").split())[:500] or ended.why
