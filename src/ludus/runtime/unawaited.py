"""Python's warning about a coroutine that was never awaited, in words for the author of an environment."""

from __future__ import annotations

import re
import sys
import warnings
from typing import TextIO

_UNAWAITED = re.compile(r"coroutine '(.+)' was never awaited")


def explain_unawaited() -> None:
    """From now on, a coroutine that was never awaited is one line that says what to write."""
    show = warnings.showwarning

    def explain(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        unawaited = _UNAWAITED.match(str(message))
        if unawaited is None or sys.stderr is None:
            show(message, category, filename, lineno, file, line)
        else:
            print(f"warning: {unawaited[1]} never ran: write `await` before the call", file=file or sys.stderr)

    warnings.showwarning = explain
