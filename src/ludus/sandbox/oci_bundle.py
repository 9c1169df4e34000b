"""The bundle of a container: its `config.json`, and the command that mounts its root and starts runc.

runc is never root. As root we become another user first, then everything happens in a user namespace in which that
user is root: an overlay whose upper layer is a file system in memory is mounted over the image, and runc makes the
container from it. So the image stays as it is, nothing is copied for a sandbox, and nothing is left when it ends.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ludus.sandbox import seccomp
from ludus.sandbox.mounts import hidden_places
from ludus.sandbox.oci_python import INSIDE, container_python
from ludus.sandbox.protocol import HOME, SandboxSpec
from ludus.sandbox.stage import Stage

_NO_CAPABILITIES: dict[str, list[str]] = {
    name: [] for name in ("bounding", "effective", "permitted", "inheritable", "ambient")
}
_MASKED = (
    *("/proc/acpi", "/proc/asound", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list"),
    *("/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/proc/kallsyms", "/proc/kmsg", "/proc/interrupts"),
)
#: Programs have the user of process 1, which is our supervisor: they must not change how the kernel treats it.
_READ_ONLY = ("/proc/1", "/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")

#: Mounts the root of the container from its layers, then turns into runc. The socket comes as its input.
_SCRIPT = """
set -e
cd "$5"
mount -t tmpfs -o "mode=755,size=$1,nr_inodes=$2" none memory
mkdir -p memory/upper/tmp "memory/upper$3" memory/work
mount -t overlay -o "lowerdir=$6,upperdir=memory/upper,workdir=memory/work,userxattr" none root
exec 3<&0 0</dev/null
exec runc --root state --rootless true run --preserve-fds 1 --pid-file state/pid "$4"
"""

#: The folders of a bundle. `lower` is a link to the image, `below` to a folder whose files `lower` adds to.
FOLDERS = ("memory", "root", "state")


def write_bundle(
    folder: Path, spec: SandboxSpec, image: str, bootstrap: str, stage: Stage, below: str | None = None
) -> list[str]:
    """Write a bundle into a folder, and return the command that runs it there as a user who is not root."""
    (folder / "lower").symlink_to(stage.visible(image))
    if below is not None:
        (folder / "below").symlink_to(stage.shifted(below))
    (folder / "config.json").write_text(json.dumps(_config(spec, stage, bootstrap)))
    limits = spec.limits
    arguments = [str(limits.disk_mb << 20), str(limits.files + 200), HOME, f"ludus-{folder.parent.name}-{folder.name}"]
    arguments += [str(folder), "lower" if below is None else "lower:below"]
    return ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", _SCRIPT, "sh", *arguments]


def _config(spec: SandboxSpec, stage: Stage, bootstrap: str) -> dict[str, Any]:
    python = container_python()
    spaces = ["pid", "ipc", "uts", "mount", "user", "cgroup", *(() if spec.network else ("network",))]
    own = [(os.path.realpath(mount.source), mount.place) for mount in spec.mounts]
    folders = [*python.mounts, *own]
    only_root = [{"containerID": 0, "hostID": 0, "size": 1}]
    return {
        "ociVersion": "1.0.2",
        "hostname": "sandbox",
        "root": {"path": "root", "readonly": False},
        "process": {
            "terminal": False,
            "user": {"uid": 0, "gid": 0},
            "args": [*python.command, f"import os\nos.dup2(3, 0)\nos.close(3)\n{bootstrap}"],
            "env": [f"PYTHONHOME={INSIDE}"],
            "cwd": HOME,
            "capabilities": _NO_CAPABILITIES,
            "noNewPrivileges": True,
        },
        "mounts": [*_mounts(spec), *(_bind(stage.visible(source), place) for source, place in folders)],
        "linux": {
            "namespaces": [{"type": kind} for kind in spaces],
            "uidMappings": only_root,
            "gidMappings": only_root,
            "maskedPaths": [*_MASKED, *python.hidden, *hidden_places(own)],
            "readonlyPaths": list(_READ_ONLY),
            "seccomp": _seccomp(),
        },
    }


def _mounts(spec: SandboxSpec) -> list[dict[str, Any]]:
    files = f"nr_inodes={spec.limits.files}"
    shared_memory = max((spec.limits.disk_mb << 20) // 10, 1 << 16)
    mounts = [
        _mount("proc", "/proc", "nosuid", "noexec", "nodev"),
        _mount("tmpfs", "/dev", "nosuid", "mode=755", "size=64k", "nr_inodes=100"),
        _mount("devpts", "/dev/pts", "nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"),
        _mount("tmpfs", "/dev/shm", "nosuid", "nodev", "mode=700", f"size={shared_memory}", files),
    ]
    if spec.network and os.path.exists("/etc/resolv.conf"):
        mounts.append(_bind(os.path.realpath("/etc/resolv.conf"), "/etc/resolv.conf"))
    return mounts


def _mount(kind: str, place: str, *options: str) -> dict[str, Any]:
    return {"type": kind, "source": kind, "destination": place, "options": list(options)}


def _bind(source: str, place: str) -> dict[str, Any]:
    return {"type": "bind", "source": source, "destination": place, "options": ["bind", "ro", "nosuid", "nodev"]}


def _seccomp() -> dict[str, Any]:
    name = {"x86_64": "SCMP_ARCH_X86_64", "aarch64": "SCMP_ARCH_AARCH64"}.get(platform.machine())
    architectures = {"architectures": [name]} if name is not None else {}
    return {"defaultAction": "SCMP_ACT_ALLOW", **architectures, "syscalls": seccomp.oci_rules()}


def container_environment(spec: SandboxSpec, image: Mapping[str, str]) -> dict[str, str]:
    """The environment of a program: the image's, ours, then the spec's."""
    path = ":".join(f"{folder}/{name}" for folder in ("/usr/local", "/usr", "") for name in ("sbin", "bin"))
    ours = {"HOME": HOME, "USER": "root", "PYTHONHASHSEED": "0"}
    return {"PATH": path, "LANG": "C.UTF-8", **image, **ours, **spec.env}


def writable_folders() -> Sequence[str]:
    """The folders whose state the supervisor looks at: one on the overlay, and the shared memory."""
    return (HOME, "/tmp", "/dev/shm")
