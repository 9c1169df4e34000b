"""The attacks that a provider may stop, in words for people."""

from __future__ import annotations

#: The kinds of attack by name. `tests/sandbox/test_attacks.py` holds each provider to its claims.
ATTACK_WORDS = {
    "processes": "starting processes without end",
    "memory": "taking all memory",
    "disk": "filling the disk",
    "files": "creating files without end",
    "open_files": "opening files without end",
    "output": "printing without end",
    "cpu": "running without end",
    "left_behind": "leaving processes behind",
    "network": "reaching the network",
    "unix_sockets": "reaching Unix sockets of the host",
    "host_files": "reading files of the host that are not part of its system",
    "host_environment": "reading environment variables of the host",
    "writing_outside": "writing outside of its own folders",
    "links": "leaving through symbolic and hard links",
    "archives": "leaving through an archive with `..` in it",
    "proc": "looking at processes of the host in /proc",
    "signals": "sending signals to processes of the host",
    "supervisor": "disturbing the process that supervises it",
    "tracing": "tracing other processes",
    "setuid": "gaining privileges through setuid programs",
    "mounts": "mounting file systems",
    "devices": "using devices and control groups of the host",
    "namespaces": "making namespaces",
    "kernel_calls": "calls of the kernel that programs do not need, such as io_uring and keyrings",
}
