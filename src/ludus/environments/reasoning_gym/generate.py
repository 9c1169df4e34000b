"""An endless stream of puzzles: the same seed and settings give the same rows, and no question occurs twice.

The library draws the puzzles in a child process. Some of its families depend on the order of Python's sets, which
differs from process to process unless it is fixed before the process starts. Some families print, use the global
random numbers, or run programs. None of that affects the collecting process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import IO, Any

import orjson

from ludus.environments.reasoning_gym.resources import require_library
from ludus.errors import UserError

#: The end of a question. The tags separate the answer from the reasoning before it.
INSTRUCTION = "Think it through, then write your final answer, and nothing else, between <answer> and </answer>."

#: Names of families or categories; or a mapping from names to weights, or to weights and settings.
Families = str | list[str] | dict[str, float | dict[str, Any]]


def stream(seed: int, *, families: Families = "all", instruction: str = INSTRUCTION) -> Iterator[dict[str, Any]]:
    """Rows of the named families, mixed by weight, until every family is exhausted.

    stream(7, families=["gcd", "logic"])
    stream(7, families={"gcd": 1, "chain_sum": {"weight": 3, "config": {"max_terms": 4}}})

    A category stands for all of its families. `all` stands for every family but `codeio`, which runs programs to make
    its puzzles. The instruction follows every question, unless it is empty.
    """
    require_library()
    return _rows(json.dumps({"seed": seed, "families": families, "instruction": instruction}).encode())


def _rows(request: bytes) -> Iterator[dict[str, Any]]:
    command = [sys.executable, "-P", "-m", f"{__package__}.draws"]
    fixed = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with (
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=fixed,
            start_new_session=True,
        ) as child,
    ):
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            child.stdin.write(request)
            child.stdin.close()
            for line in child.stdout:
                row = orjson.loads(line)
                if "error" in row:
                    raise UserError(row["error"])
                yield row
            if child.wait() != 0:
                raise RuntimeError(f"the process that draws puzzles failed: {_last_line(errors)}")
        finally:
            child.kill()


def _last_line(errors: IO[bytes]) -> str:
    errors.seek(0)
    lines = errors.read().decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "no message"
