"""The seccomp filter of a sandbox, as the BPF program that the kernel loads.

Everything is allowed but the calls in the tables below: ways to the kernel that programs in a sandbox do not need, and
calls that could reach process 1 of the sandbox. A refused call fails with EPERM, so that programs can go on.
"""

from __future__ import annotations

import errno
import platform
import socket
import struct
from collections.abc import Iterable
from functools import cache

#: Refused whatever the arguments. The numbers are those of the kernel's tables for x86-64 and for arm64.
_REFUSED = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "unshare": (272, 97),
    "setns": (308, 268),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "fanotify_init": (300, 262),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "syslog": (103, 116),
    "settimeofday": (164, 170),
    "adjtimex": (159, 171),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "personality": (135, 92),
    "vhangup": (153, 58),
    # System V and POSIX message queues, semaphores and shared memory outlive the processes that made them.
    "shmget": (29, 194),
    "semget": (64, 190),
    "msgget": (68, 186),
    "mq_open": (240, 180),
}
#: Refused as unknown calls, so that the C library uses an older call, which is checked below.
_UNKNOWN = {"clone3": (435, 435)}

#: Refused if the first argument is the supervisor, which is process 1 of most sandboxes.
_ON_SUPERVISOR = {
    "prlimit64": (302, 261),
    "sched_setaffinity": (203, 122),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
    "sched_setattr": (314, 274),
}
_CLONE, _SOCKET, _SOCKETPAIR, _IOCTL = (56, 220), (41, 198), (53, 199), (16, 29)
_SETPRIORITY, _IOPRIO_SET = (141, 140), (251, 30)

_NEW_NAMESPACES = 0x7E020000  # every CLONE_NEW* flag that clone() takes
_FAMILIES = (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6)
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C

_ARCHITECTURES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
_X32 = 0x40000000

_LOAD, _JUMP_EQUAL, _JUMP_AT_LEAST, _JUMP_ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL, _ERROR = 0x7FFF0000, 0x80000000, 0x00050000
_NUMBER, _ARCH, _ARGUMENTS = 0, 4, 16


@cache
def program() -> bytes | None:
    """The BPF program for this machine, or None if its architecture is not in the tables."""
    known = _ARCHITECTURES.get(platform.machine())
    if known is None:
        return None
    arch, column = known
    code = _Code()
    code.load(_ARCH)
    code.unless_equal(arch, _KILL)
    code.load(_NUMBER)
    if column == 0:
        code.if_at_least(_X32, _ERROR | errno.ENOSYS)
    for numbers in _REFUSED.values():
        code.if_equal(numbers[column], _ERROR | errno.EPERM)
    for numbers in _UNKNOWN.values():
        code.if_equal(numbers[column], _ERROR | errno.ENOSYS)
    code.protect(1, column)
    code.call(_CLONE[column], [(_JUMP_ANY_BIT, 0, _NEW_NAMESPACES)], _ERROR | errno.EPERM)
    code.call(_IOCTL[column], [(_JUMP_EQUAL, 1, _TIOCSTI), (_JUMP_EQUAL, 1, _TIOCLINUX)], _ERROR | errno.EPERM)
    for numbers in (_SOCKET, _SOCKETPAIR):
        code.call_unless(numbers[column], 0, _FAMILIES, _ERROR | errno.EAFNOSUPPORT)
    code.end(_ALLOW)
    return code.bytes()


def protecting(supervisor: int) -> bytes | None:
    """A second filter, for programs that have the user of a supervisor which is not process 1 of their namespace."""
    known = _ARCHITECTURES.get(platform.machine())
    if known is None:
        return None
    code = _Code()
    code.load(_NUMBER)
    code.protect(supervisor, known[1])
    code.end(_ALLOW)
    return code.bytes()


@cache
def no_sockets() -> bytes | None:
    """A second filter, for a sandbox that shares the host's network: no socket but a pair of the program's own."""
    known = _ARCHITECTURES.get(platform.machine())
    if known is None:
        return None
    code = _Code()
    code.load(_NUMBER)
    code.if_equal(_SOCKET[known[1]], _ERROR | errno.EACCES)
    code.end(_ALLOW)
    return code.bytes()


def oci_rules() -> list[dict[str, object]]:
    """The same rules as `program`, in the words of an OCI bundle's `linux.seccomp.syscalls`."""

    def refuse(names: Iterable[str], code: int, *tests: tuple[int, str, int, int]) -> dict[str, object]:
        arguments = [{"index": i, "op": op, "value": value, "valueTwo": two} for i, op, value, two in tests]
        return {"names": list(names), "action": "SCMP_ACT_ERRNO", "errnoRet": code, "args": arguments}

    # Rules are added up: one for each bit that is not allowed, and one for each family.
    sockets, last = ["socket", "socketpair"], int(max(_FAMILIES))
    spaces = [1 << bit for bit in range(32) if _NEW_NAMESPACES >> bit & 1]
    return [
        refuse(_REFUSED, errno.EPERM),
        refuse(_UNKNOWN, errno.ENOSYS),
        refuse(_ON_SUPERVISOR, errno.EPERM, (0, "SCMP_CMP_EQ", 1, 0)),
        *(refuse(["clone"], errno.EPERM, (0, "SCMP_CMP_MASKED_EQ", space, space)) for space in spaces),
        *(refuse(["setpriority"], errno.EPERM, (n, "SCMP_CMP_EQ", value, 0)) for n, value in ((0, 2), (1, 1))),
        *(refuse(["ioprio_set"], errno.EPERM, (n, "SCMP_CMP_EQ", value, 0)) for n, value in ((0, 3), (1, 1))),
        *(refuse(["ioctl"], errno.EPERM, (1, "SCMP_CMP_EQ", value, 0)) for value in (_TIOCSTI, _TIOCLINUX)),
        *(refuse(sockets, errno.EAFNOSUPPORT, (0, "SCMP_CMP_EQ", n, 0)) for n in range(last) if n not in _FAMILIES),
        refuse(sockets, errno.EAFNOSUPPORT, (0, "SCMP_CMP_GT", last, 0)),
    ]


class _Code:
    """A BPF program under construction. The number of the call stays loaded between two rules."""

    def __init__(self) -> None:
        self._lines: list[tuple[int, int, int, int]] = []

    def load(self, offset: int) -> None:
        self._lines.append((_LOAD, 0, 0, offset))

    def end(self, verdict: int) -> None:
        self._lines.append((_RETURN, 0, 0, verdict))

    def if_equal(self, value: int, verdict: int) -> None:
        self._lines.append((_JUMP_EQUAL, 0, 1, value))
        self.end(verdict)

    def unless_equal(self, value: int, verdict: int) -> None:
        self._lines.append((_JUMP_EQUAL, 1, 0, value))
        self.end(verdict)

    def if_at_least(self, value: int, verdict: int) -> None:
        self._lines.append((_JUMP_AT_LEAST, 0, 1, value))
        self.end(verdict)

    def call(self, number: int, tests: list[tuple[int, int, int]], verdict: int) -> None:
        """Refuse a call if one of the tests (jump, argument, value) holds for its arguments."""
        body: list[tuple[int, int, int, int]] = []
        for jump, argument, value in tests:
            body += [(_LOAD, 0, 0, _ARGUMENTS + 8 * argument), (jump, 0, 1, value), (_RETURN, 0, 0, verdict)]
        self._rule(number, body)

    def protect(self, pid: int, column: int) -> None:
        """Refuse to change the limits and the priority of a process."""
        for numbers in _ON_SUPERVISOR.values():
            self.call(numbers[column], [(_JUMP_EQUAL, 0, pid)], _ERROR | errno.EPERM)
        self.call(_SETPRIORITY[column], [(_JUMP_EQUAL, 0, 2), (_JUMP_EQUAL, 1, pid)], _ERROR | errno.EPERM)
        self.call(_IOPRIO_SET[column], [(_JUMP_EQUAL, 0, 3), (_JUMP_EQUAL, 1, pid)], _ERROR | errno.EPERM)

    def call_unless(self, number: int, argument: int, values: tuple[int, ...], verdict: int) -> None:
        """Refuse a call unless an argument has one of the values."""
        body = [(_LOAD, 0, 0, _ARGUMENTS + 8 * argument)]
        for left, value in zip(range(len(values), 0, -1), values, strict=True):
            body.append((_JUMP_EQUAL, left, 0, value))
        body.append((_RETURN, 0, 0, verdict))
        self._rule(number, body)

    def _rule(self, number: int, body: list[tuple[int, int, int, int]]) -> None:
        body = [*body, (_LOAD, 0, 0, _NUMBER)]
        self._lines += [(_JUMP_EQUAL, 0, len(body), number), *body]

    def bytes(self) -> bytes:
        return b"".join(struct.pack("=HBBI", *line) for line in self._lines)
