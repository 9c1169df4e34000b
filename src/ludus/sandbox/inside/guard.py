"""Keeps a program away from its supervisor where both have the same user and no pid namespace lies between them."""

from __future__ import annotations

import ctypes
import os
import struct
from typing import Any

# The numbers of Landlock's system calls are the same on every architecture.
CREATE_RULESET, RESTRICT_SELF, SCOPE_SIGNALS = 444, 446, 2
PR_SET_SECCOMP, FILTER = 22, 2


def keep_away(libc: Any, code: bytes) -> None:
    """In a program's process: no signal leaves it and its children, and seccomp refuses the calls of a filter."""
    rules = struct.pack("=QQQ", 0, 0, SCOPE_SIGNALS)
    ruleset = libc.syscall(CREATE_RULESET, rules, ctypes.c_size_t(len(rules)), 0)
    if ruleset < 0 or libc.syscall(RESTRICT_SELF, ruleset, 0) < 0:
        raise OSError("Landlock cannot keep signals inside")
    os.close(ruleset)
    buffer = ctypes.create_string_buffer(code, len(code))
    if libc.prctl(PR_SET_SECCOMP, FILTER, struct.pack("@HP", len(code) // 8, ctypes.addressof(buffer)), 0, 0) < 0:
        raise OSError("seccomp refuses the filter")
