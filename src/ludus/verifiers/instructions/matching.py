"""How often a word occurs in a text.

A word is a word, whatever characters it holds. The reference takes it for a regular expression, which `pattern_count`
reproduces. Such a pattern comes with a dataset and can take Python's `re` hours, in which no thread or deadline helps,
so all but harmless ones run in a child process with a budget of CPU time.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

from ludus.outcome import Failure

_CHILD = Path(__file__).with_name("matching_child.py")
_SECONDS = 1.0
_HARMLESS = re.compile(r"(?:\\b|[^*+?{}()\[\]|\\^$])*")  # nothing that repeats, so nothing that backtracks


def count(word: str, text: str, *, compat: bool = False) -> int | None:
    """How often a word occurs, in any case and also inside other words; None for a pattern that is none."""
    return pattern_count(word, text, re.IGNORECASE) if compat else len(re.findall(re.escape(word), text, re.IGNORECASE))


def stands_alone(word: str, text: str, flags: int = 0) -> bool:
    """Whether a word occurs with no letter, digit or underscore joined to it."""
    return re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text, flags) is not None


def pattern_count(pattern: str, text: str, flags: int = 0) -> int | None:
    """How often a pattern matches; None when `re` does not accept it. A `Failure` when its budget is spent."""
    if _HARMLESS.fullmatch(pattern):
        return len(re.findall(pattern, text, flags))
    request = json.dumps([_SECONDS, pattern, int(flags), text])
    child = subprocess.run([sys.executable, "-I", "-S", str(_CHILD)], input=request.encode(), capture_output=True)
    if child.returncode == -signal.SIGVTALRM:
        raise Failure("timeout", f"the pattern {pattern!r:.100} was stopped after {_SECONDS:g} s of searching")
    if child.returncode:
        raise Failure("crash", f"the search for {pattern!r:.100} ended with {child.returncode}")
    found: int | None = json.loads(child.stdout)
    return found
