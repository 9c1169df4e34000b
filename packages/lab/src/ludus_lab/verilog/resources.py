"""A Verilog module to write: simulated with hidden inputs, and judged by its outputs.

The module runs beside the test bench in one simulation, so it must not speak for it: system tasks, which print, end the
simulation or touch files, and compiler directives are refused before anything is compiled. The bench has a random name,
so that the module cannot reach into it, and the expected outputs are compared outside the sandbox.
"""

from __future__ import annotations

import re
import secrets
from typing import Any

from pydantic import PositiveFloat

import ludus
from ludus import Response, Verdict
from ludus.sandbox import SandboxLimits, SandboxSpec
from ludus.sandbox.resources import SandboxConfig
from ludus_lab.programs import ProgramResources, problem_of, run_in
from ludus_lab.verilog.bench import ModuleBench

#: A `$` that does not begin one of these functions, a directive that is none of these, or an escaped name.
REFUSED = re.compile(
    r"\$(?!(?:signed|unsigned|clog2|bits)\b)\w*|`(?!(?:timescale|default_nettype)\b)\w*|\\|\b(?:force|release|config|bind)\b"
)


class Verilog(ProgramResources):
    """The verifier simulates the module."""

    refused = REFUSED

    class Task(ludus.Task):
        bench: ModuleBench

    class Config(SandboxConfig):
        """Settings of the verifier."""

        #: Seconds that compilation and simulation may take each.
        seconds: PositiveFloat = 10.0

    config: Config
    sandbox_spec = SandboxSpec(limits=SandboxLimits(memory_mb=512, disk_mb=64))

    async def verify(self, task: Task, response: Response) -> Verdict:
        module, problem = self.read_program(response)
        if problem is not None:
            return _verdict(0, task, problem)
        name, seconds = f"bench_{secrets.token_hex(8)}", self.config.seconds
        async with await self.new_box() as box:
            files = {"bench.v": task.bench.source(name), "answer.v": module}
            command = ["iverilog", "-g2012", "-s", name, "-o", "simulation", *files]
            compiled = await run_in(box, files, command, seconds)
            if not compiled.ok:
                return _verdict(0, task, f"it does not compile: {problem_of(compiled)}")
            ended = await run_in(box, {}, ["vvp", "-n", "simulation"], seconds)
        expected, printed = task.bench.lines(), ended.text.splitlines()
        right = sum(line == wanted for line, wanted in zip(printed, expected, strict=False))
        if not ended.ok or len(printed) != len(expected):
            return _verdict(0, task, f"the simulation ended early: {ended.why}")
        return _verdict(right, task, None if right == len(expected) else "outputs differ")


def _verdict(right: int, task: Any, problem: str | None) -> Verdict:
    total = len(task.bench.expected)
    passed = problem is None and right == total
    parts = {"passed": float(passed), "steps": right / total}
    return Verdict(float(passed), components=parts, problem=problem)
