"""Programs that attack their sandbox. Each prints lines that begin with ESCAPED for whatever it got away with."""

from __future__ import annotations

_HEAD = """
import ctypes, os, signal, socket, struct, sys, time
libc = ctypes.CDLL(None, use_errno=True)
def escaped(what):
    print("ESCAPED", what, flush=True)
def tried(what, function, *args):
    try:
        got = function(*args)
    except Exception as error:
        return
    escaped(f"{what}: {got!r:.200}")
def call(what, *numbers):
    number = numbers[0] if os.uname().machine == "x86_64" else numbers[1]
    ctypes.set_errno(0)
    if libc.syscall(number, *numbers[2:]) >= 0:
        escaped(what)
"""


def attack(source: str) -> str:
    """A program with the helpers that attacks use."""
    return _HEAD + source


NETWORK = """
for family, address in (
    (socket.AF_INET, ("1.1.1.1", 80)), (socket.AF_INET, ("127.0.0.1", PORT)), (socket.AF_INET6, ("::1", PORT)),
):
    def connect():
        one = socket.socket(family)
        one.settimeout(2)
        one.connect(address)
    tried(f"connected to {address}", connect)
for name in ("AF_VSOCK", "AF_PACKET", "AF_NETLINK", "AF_ALG", "AF_BLUETOOTH"):
    tried(name, socket.socket, getattr(socket, name, 99), socket.SOCK_RAW)
tried("a name was resolved", socket.getaddrinfo, "example.com", 80)
"""

UNIX_SOCKETS = """
for address in ("\\0NAME", "/tmp/NAME", "/run/dbus/system_bus_socket", "/var/run/docker.sock"):
    tried(f"connected to {address!r}", lambda: socket.socket(socket.AF_UNIX).connect(address))
"""

HOST_FILES = """
for path in ("/etc/shadow", "/etc/hostname", "/root/.bashrc", "/var/log", "/home/root", "/work", "/mnt/0", SECRET_FILE):
    if path != sys.base_prefix:
        tried(f"read {path}", lambda: os.listdir(path) if os.path.isdir(path) else open(path).read())
try:
    found = set(os.listdir("/")) - set("bin boot dev etc home lib lib32 lib64 opt proc root sbin tmp usr".split())
except PermissionError:
    found = set()
if found - ({"data", ".ludus"} if IMAGE else set()):
    escaped(found)
"""

HOST_ENVIRONMENT = """
for pid in os.listdir("/proc"):
    if pid.isdigit():
        for name in ("environ", "cmdline"):
            try:
                text = open(f"/proc/{pid}/{name}", "rb").read()
            except OSError:
                continue
            if SECRET.encode() in text:
                escaped((pid, name))
if SECRET in str(dict(os.environ)):
    escaped("os.environ")
"""

WRITING_OUTSIDE = """
library = os.path.dirname(os.__file__)
system = ("/", "/usr", "/usr/bin", "/usr/lib", "/etc", "/dev", "/opt", "/root", "/home")
for folder in ("/proc", library, *(() if IMAGE else system)):  # an image is the sandbox's own, and is thrown away
    tried(f"wrote to {folder}", lambda: open(folder + "/owned", "w").write("x"))
tried("replaced the interpreter", lambda: open(sys.executable, "r+b"))
tried("replaced a module", lambda: open(os.__file__, "a"))
tried("chmod", os.chmod, library if IMAGE else "/usr", 0o777)
"""

LINKS = """
tried("hard link", os.link, "/etc/passwd", "linked")
tried("hard link", os.link, sys.executable, "linked2")
os.symlink(SECRET_FILE, "secret")
os.symlink("/proc/1/root" + SECRET_FILE, "secret2")
os.symlink("/", "everything")
for path in ("secret", "secret2", "everything" + SECRET_FILE):
    tried(path, lambda: open(path).read())
"""

PROC = """
for path in ("root/etc/shadow", "root" + SECRET_FILE, "mem", "environ", "cwd/x", "maps", "fd/0", "fd/3", "fd/4"):
    tried(f"/proc/1/{path}", lambda: open(f"/proc/1/{path}", "rb").read(1))
for path in ("/proc/1/map_files", "/proc/1/root", *(() if IMAGE else ("/proc/1/fd",))):
    tried(path, lambda: os.listdir(path))
for path, text in (
    ("/proc/sys/kernel/core_pattern", "|/bin/sh"), ("/proc/sysrq-trigger", "h"), ("/proc/sys/vm/drop_caches", "1"),
    ("/proc/1/oom_score_adj", "1000"), ("/proc/1/mem", "x"), ("/proc/self/uid_map", "0 0 1"), ("/proc/kcore", "x"),
):
    def write():
        with open(path, "w") as file:
            file.write(text)
    tried(f"wrote {path}", write)
tried("kernel memory", lambda: open("/proc/kcore", "rb").read(1))
"""

SIGNALS = """
for number in (signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
    try:
        os.kill(1, number)
    except OSError:
        pass
for pid in range(2, 5000):
    if pid not in (os.getpid(), os.getppid()):
        try:
            os.kill(pid, 0)
        except OSError:
            continue
        escaped(f"sees process {pid}")
"""

TRACING = """
call("ptrace", 101, 117, 16, 1, 0, 0)
call("ptrace seize", 101, 117, 0x4206, 1, 0, 0)
buffer = ctypes.create_string_buffer(8)
class Vector(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]
here, there = Vector(ctypes.addressof(buffer), 8), Vector(0x400000, 8)
call("process_vm_readv", 310, 270, 1, ctypes.byref(here), 1, ctypes.byref(there), 1, 0)
call("pidfd_getfd", 438, 438, os.pidfd_open(1), 0, 0)
"""

SETUID = """
other = 1 if IMAGE else 0  # in an image programs are user 0, who has no rights that others lack
tried("setuid", os.setuid, other)
tried("setgid", os.setgid, other)
tried("setgroups", os.setgroups, [other])
import shutil, subprocess
shutil.copy("/bin/sh", "sh")
tried("chown", os.chown, "sh", other, other)
os.chmod("sh", 0o4755)
programs = (["./sh", "-p", "-c", "id -u"], ["su", "-c", "id -u"], ["sudo", "-n", "id", "-u"])
for command in () if IMAGE else programs:
    try:
        if subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL).stdout.strip() == b"0":
            escaped(command)
    except OSError:
        pass
if int(open("/proc/self/status").read().split("CapEff:")[1].split()[0], 16):
    escaped("capabilities")
"""

MOUNTS = """
call("mount", 165, 40, b"none", b"/tmp", b"tmpfs", 0, 0)
call("remount", 165, 40, b"none", b"/", b"", 0x20 | 0x1000, 0)
call("umount", 166, 39, b"/proc", 2)
call("pivot_root", 155, 41, b"/tmp", b"/tmp")
call("chroot", 161, 51, b"/tmp")
call("fsopen", 430, 430, b"tmpfs", 0)
call("open_tree", 428, 428, -100, b"/", 1)
"""

DEVICES = """
for kind, numbers in ((0o020600, (1, 1)), (0o020600, (1, 3)), (0o060600, (8, 0)), (0o060600, (254, 0))):
    tried(f"made the device {numbers}", os.mknod, f"device-{numbers}", kind, os.makedev(*numbers))
for name in ("mem", "kmem", "kmsg", "port", "sda", "vda", "kvm", "fuse", "net/tun", "loop-control", "rtc0"):
    tried(f"opened /dev/{name}", lambda: os.close(os.open(f"/dev/{name}", os.O_RDWR)))
for path in ("cgroup.procs", "memory/tasks", "pids/pids.max", "devices/devices.allow", "memory/release_agent"):
    tried(f"wrote to the cgroup's {path}", lambda: open(f"/sys/fs/cgroup/{path}", "w").write("1"))
for path in ("/sys/kernel/uevent_helper", "/sys/power/state", "/sys/class/net/lo/mtu"):
    tried(f"wrote to {path}", lambda: open(path, "w").write("1"))
"""

NAMESPACES = """
for flag in (0x10000000, 0x00020000, 0x20000000, 0x40000000, 0x04000000, 0x08000000, 0x02000000):
    call(f"unshare {flag:x}", 272, 97, flag)
    ctypes.set_errno(0)
    pid = libc.syscall(56 if os.uname().machine == "x86_64" else 220, flag | signal.SIGCHLD, 0, 0, 0, 0)
    if pid == 0:
        os._exit(0)
    if pid > 0:
        escaped(f"clone {flag:x}")
for name in os.listdir("/proc/self/ns"):
    try:
        fd = os.open(f"/proc/1/ns/{name}", os.O_RDONLY)
    except OSError:
        continue
    call(f"setns {name}", 308, 268, fd, 0)
"""

KERNEL_CALLS = """
buffer = ctypes.create_string_buffer(256)
call("io_uring_setup", 425, 425, 4, buffer)
call("add_key", 248, 217, b"user", b"x", b"y", 1, -3)
call("keyctl", 250, 219, 0, -3, 1)
call("bpf", 321, 280, 0, buffer, 64)
call("perf_event_open", 298, 241, buffer, 0, -1, -1, 0)
call("userfaultfd", 323, 282, 0)
call("open_by_handle_at", 304, 265, -100, buffer, 0)
call("shmget", 29, 194, 1234, 4096, 0o1600)
call("mq_open", 240, 180, b"name", 0o102, 0o600, 0)
call("syslog", 103, 116, 3, buffer, 256)
call("personality", 135, 92, 0x0400000)
"""

SUPERVISOR = """
import fcntl, resource
supervisor = os.getppid()
for number in (signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM, signal.SIGHUP, signal.SIGXCPU, signal.SIGRTMAX):
    for target in (supervisor, -supervisor, -1):
        try:
            os.kill(target, number)
        except OSError:
            pass
    pidfd = os.pidfd_open(supervisor)
    try:
        signal.pidfd_send_signal(pidfd, number)
    except OSError:
        pass
    os.close(pidfd)
read, write = os.pipe()
for number in (signal.SIGKILL, signal.SIGIO):  # signals that a descriptor sends when it has something to read
    fcntl.fcntl(read, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
    fcntl.fcntl(read, 10, number)
    try:
        fcntl.fcntl(read, fcntl.F_SETOWN, supervisor)
        os.write(write, b"x")
    except OSError:
        pass
os.close(read), os.close(write)
for limit in (resource.RLIMIT_CPU, resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE):
    tried("prlimit", resource.prlimit, supervisor, limit, (0, 0))
tried("affinity", os.sched_setaffinity, supervisor, {0})
tried("renice", os.setpriority, os.PRIO_PROCESS, supervisor, 19)
tried("renice its group", os.setpriority, os.PRIO_PGRP, supervisor, 19)
tried("renice all", os.setpriority, os.PRIO_USER, 0, 19)
tried("batch", os.sched_setscheduler, supervisor, os.SCHED_BATCH, os.sched_param(0))
for name in ("mem", "environ", "maps", "fd", "cwd", "root", "task/0/mem"):
    tried(f"its {name}", lambda: os.stat(os.readlink(f"/proc/{supervisor}/{name}")) if name in ("cwd", "root") else
        os.listdir(f"/proc/{supervisor}/{name}") if name == "fd" and not IMAGE else
        open(f"/proc/{supervisor}/{name}", "rb").read(1))
for name, text in (("oom_score_adj", "1000"), ("comm", "x"), ("autogroup", "19")):
    def write_file():
        with open(f"/proc/{supervisor}/{name}", "w") as file:
            file.write(text)
    tried(f"wrote its {name}", write_file)
for fd in range(3, 1024):
    try:
        os.fstat(fd)
    except OSError:
        continue
    escaped(f"inherited the descriptor {fd}")
frame = sys._getframe()
while frame.f_back:
    frame = frame.f_back
    for value in list(frame.f_locals.values()) + list(frame.f_globals.values()):
        if isinstance(value, socket.socket) and value.fileno() >= 0:
            tried("the socket to the host", value.send, b"x")
"""
