"""The other end of `patterns.py`: a program that reads searches from stdin and writes what it found to stdout.

It imports nothing of ours, so that it starts in milliseconds. Before each search it arms a timer of its own CPU time
whose signal ends the process: neither a pattern nor a vanished parent can keep it busy.
"""

from __future__ import annotations

import json
import re
import signal
import sys
from typing import Any


def last_match(pattern: str, flags: int, text: str) -> Any:
    """The spans of the last match and of its groups, None for no match, or a text that says what is wrong."""
    try:
        compiled = re.compile(pattern, flags)
    except (re.error, OverflowError, RecursionError) as error:
        return str(error)
    last = None
    for last in compiled.finditer(text):  # noqa: B007
        pass
    return None if last is None else [last.span(group) for group in range(compiled.groups + 1)]


def main() -> None:
    """Serve until stdin ends. Messages are JSON behind four bytes of length."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    given, answers = sys.stdin.buffer, sys.stdout.buffer
    while header := given.read(4):
        seconds, *search = json.loads(given.read(int.from_bytes(header, "big")))
        signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
        reply = json.dumps(last_match(*search)).encode()
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        answers.write(len(reply).to_bytes(4, "big") + reply)
        answers.flush()


if __name__ == "__main__":
    main()
