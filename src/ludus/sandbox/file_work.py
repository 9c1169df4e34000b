"""The text of `inside/files.py`, and what the ends of its operations mean."""

from __future__ import annotations

import marshal
from functools import cache
from pathlib import Path
from typing import Any


@cache
def files_source() -> str:
    """The program that works on files inside."""
    return (Path(__file__).parent / "inside" / "files.py").read_text(encoding="utf-8")


@cache
def files_program() -> str:
    """The same for the interpreter that runs us, compiled: every operation would compile it again.

    HOME is removed from the search path: a module there would be imported in the place of one of ours.
    """
    code = marshal.dumps(compile(files_source(), "files.py", "exec"))
    return f"import sys\ndel sys.path[0]\nimport marshal\nexec(marshal.loads({code!r}))\n"


def read_content(result: Any, path: str, max_bytes: int) -> bytes:
    """What was read of a file, of which one byte more than allowed was asked for. Raises `OSError`."""
    if result.exit_code == 44:
        raise FileNotFoundError(f"no such file in the sandbox: {path}")
    if not result.ok:
        raise OSError(f"cannot read {path} in the sandbox: {result.last_line or result.why}")
    if len(result.stdout) > max_bytes:
        raise OSError(f"{path} in the sandbox is larger than {max_bytes} bytes")
    return bytes(result.stdout)


def check_written(result: Any, path: str) -> None:
    """Raise `OSError` if a file was not written."""
    if not result.ok:
        raise OSError(f"cannot write {path} in the sandbox: {result.last_line or result.why}")
