"""Rows for the tests of `ludus data`."""

from __future__ import annotations

import contextlib
import json
import signal
import sys
from dataclasses import dataclass
from io import BytesIO, StringIO, TextIOWrapper
from pathlib import Path
from typing import Any
from unittest.mock import patch

import orjson

from ludus.cli import main


def row(prompt: str = "hi", **fields: Any) -> dict[str, Any]:
    return {"responses_create_params": {"input": prompt}, "expected_answer": "B", **fields}


def write(path: Path, *lines: Any) -> Path:
    path.write_bytes(b"".join((line if isinstance(line, bytes) else orjson.dumps(line)) + b"\n" for line in lines))
    return path


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


@dataclass
class Done:
    returncode: int
    stdout: str
    stderr: str


def command(folder: Path, *words: str) -> Done:
    """Run `ludus data` in a folder, in this process."""
    return ludus_command(folder, "data", *words)


def ludus_command(folder: Path, *words: str) -> Done:
    """Run `ludus` in a folder, in this process."""
    handler, output, errors = signal.getsignal(signal.SIGTERM), TextIOWrapper(BytesIO(), "utf-8"), StringIO()
    try:
        with contextlib.ExitStack() as stack:
            stack.enter_context(contextlib.chdir(folder))
            stack.enter_context(patch.object(sys, "argv", ["ludus", *words]))
            stack.enter_context(contextlib.redirect_stdout(output))
            stack.enter_context(contextlib.redirect_stderr(errors))
            main()
        code = 0
    except SystemExit as ended:
        code = int(ended.code or 0)
    finally:
        signal.signal(signal.SIGTERM, handler)
    output.flush()
    return Done(code, output.buffer.getvalue().decode(), errors.getvalue())  # type: ignore[attr-defined]
