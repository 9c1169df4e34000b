"""The other end of `matching.py`: a program that counts the matches of one pattern, and ends when its time is up.

It imports nothing of ours, so that it starts in milliseconds. The timer counts its own CPU time, and its signal ends
the process: neither a pattern nor a vanished parent can keep it busy.
"""

from __future__ import annotations

import json
import re
import signal
import sys


def count(pattern: str, flags: int, text: str) -> int | None:
    """How often a pattern matches, or None for one that is no pattern."""
    try:
        return sum(1 for _ in re.finditer(pattern, text, flags))
    except (re.error, OverflowError, RecursionError):
        return None


def main() -> None:
    """Answer the one request on stdin."""
    seconds, pattern, flags, text = json.load(sys.stdin)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    print(json.dumps(count(pattern, flags, text)))


if __name__ == "__main__":
    main()
