"""Child processes that Ctrl-C reaches, in whatever shell the tests were started.

A shell that starts a job with `&`, nohup and many CI runners ignore SIGINT, and what is ignored stays ignored in every
process below. What is handled is not: a program starts with the default again.
"""

from __future__ import annotations

import signal
import subprocess
from typing import Any


def start(command: list[str], **options: Any) -> subprocess.Popen[Any]:
    """`subprocess.Popen`, with SIGINT as it is for a program that a person starts at a terminal."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return subprocess.Popen(command, **options)
    finally:
        signal.signal(signal.SIGINT, before)
