"""How a process gives up its rights before it runs programs: Landlock, seccomp, a new session.

This file's text runs in a bare interpreter, before the supervisor: it imports nothing of ours.
"""

from __future__ import annotations

import ctypes
import os
import struct
from typing import Any

# The system call numbers are the same on every architecture.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION, _PATH_BENEATH = 1, 1

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_TRUNCATE, _IOCTL_DEVICE = 1 << 14, 1 << 15
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEVICE
_NO_TCP, _NO_ABSTRACT_SOCKETS_AND_SIGNALS = 3, 3

_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _FILTER = 38, 22, 2


def landlock_version() -> int:
    """The version of Landlock in this kernel: 0 if it has none, 6 and newer also keep signals inside."""
    version: int = ctypes.CDLL(None, use_errno=True).syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _VERSION)
    return max(version, 0)


def give_up_rights(wanted: dict[str, Any]) -> None:
    """Confine this process and all that it starts.

    `read` and `write` are the paths that it may use, `network` says whether it may use TCP, `filters` are programs for
    seccomp as hexadecimal text.
    """
    os.setsid()
    libc = ctypes.CDLL(None, use_errno=True)
    _check(libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    _restrict_files(libc, wanted)
    os.closerange(3, 1024)
    for text in wanted["filters"]:
        code = bytes.fromhex(text)
        buffer = ctypes.create_string_buffer(code, len(code))
        program = struct.pack("@HP", len(code) // 8, ctypes.addressof(buffer))
        _check(libc.prctl(_PR_SET_SECCOMP, _FILTER, program, 0, 0), "seccomp")


def _restrict_files(libc: Any, wanted: dict[str, Any]) -> None:
    version = landlock_version()
    all_rights = (1 << (13 + (version >= 2) + (version >= 3) + (version >= 5))) - 1
    rules = struct.pack(
        "=QQQ",
        all_rights,
        _NO_TCP if version >= 4 and not wanted["network"] else 0,
        _NO_ABSTRACT_SOCKETS_AND_SIGNALS if version >= 6 else 0,
    )[: 24 if version >= 6 else 16 if version >= 4 else 8]
    ruleset = _check(libc.syscall(_CREATE_RULESET, rules, ctypes.c_size_t(len(rules)), 0), "Landlock")
    for rights, paths in ((_READ, wanted["read"]), (all_rights, wanted["write"])):
        for path in paths:
            try:
                fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
            except FileNotFoundError:
                continue
            allowed = rights if os.path.isdir(path) else rights & _OF_FILES & all_rights
            rule = struct.pack("=Qi", allowed & all_rights, fd)
            _check(libc.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, rule, 0), f"Landlock: {path}")
            os.close(fd)
    _check(libc.syscall(_RESTRICT_SELF, ruleset, 0), "Landlock")
    os.close(ruleset)


def _check(result: int, what: str) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")
    return result
