"""The first process inside a sandbox: it runs programs for the host, one at a time, and ends all that they started.

The host sends this file's text to the interpreter inside, so it imports nothing of ours and keeps no secret: what a
program should print never comes in here. As process 1 of its own pid namespace it cannot be killed or traced from
inside. A Python program runs in a fork of this interpreter, which saves the start of a new one.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import resource
import select
import signal
import socket
import struct
import sys
import time
from typing import Any, NoReturn

HEADER = struct.Struct("!II")  # the lengths of the JSON part and of the bytes after it
LOOK = 0.05  # seconds between two looks at files and memory while a program runs
DRAIN_BYTES = 64 << 20  # a program that writes this much more than its limit is stopped
PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 4, 36, 38


class Host:
    """The socket to the host. A message is a JSON object and some bytes."""

    def __init__(self, fd: int) -> None:
        self.socket = socket.socket(fileno=fd)

    def receive(self) -> tuple[dict[str, Any], bytes]:
        """The next message."""
        head, body = HEADER.unpack(self.exactly(HEADER.size))
        return json.loads(self.exactly(head)), self.exactly(body)

    def send(self, head: dict[str, Any], *parts: bytes | bytearray) -> None:
        """Send one message."""
        text = json.dumps(head).encode()
        self.socket.sendall(HEADER.pack(len(text), sum(map(len, parts))) + text)
        for part in parts:
            self.socket.sendall(part)

    def exactly(self, length: int) -> bytes:
        """The next bytes. If the host is gone, everything ends here."""
        data = bytearray()
        while len(data) < length:
            part = self.socket.recv(min(length - len(data), 1 << 20))
            if not part:
                os._exit(0)  # the host is gone, and with process 1 ends everything in this sandbox
            data += part
        return bytes(data)


class Supervisor:
    """Serves the host's requests until the host is gone."""

    def __init__(self, host: Host, setup: dict[str, Any]) -> None:
        self.host = host
        self.home = setup["home"]
        self.writable = setup["writable"]
        self.limits = setup["limits"]
        self.background = setup["background"]
        self.watch_memory = setup["watch_memory"]
        self.environ = setup["env"]
        self.alone = os.getpid() == 1 or setup["own_user"]  # kill(-1) reaches the programs and nothing else
        self.baseline: dict[str, int] = {}

    def serve(self) -> NoReturn:
        """Answer requests, one at a time."""
        for path in self.writable:
            tidy(path)
        self.baseline = {path: used_files(path) for path in self.writable}
        gc.collect()
        gc.freeze()  # a fork that collects garbage would copy these pages
        self.host.send({"ready": True, "version": sys.version_info[:3]})
        while True:
            if self.background:
                self.wait_for_request()
            request, body = self.host.receive()
            if request["op"] == "reset":
                self.host.send({"clean": self.reset()})
            else:
                self.host.send(*self.run(request, body))

    def wait_for_request(self) -> None:
        """Reap orphans while there is nothing to do."""
        while not select.select([self.host.socket], [], [], 1.0)[0]:
            self.reap()

    def run(self, request: dict[str, Any], body: bytes) -> tuple[dict[str, Any], bytearray, bytearray]:
        """Run one program to its end, and return the reply."""
        program = Program(request, body)
        started = time.monotonic()
        program.pid = pid = os.fork()
        if pid == 0:
            try:
                self.become(program)
            except BaseException as error:  # never returns into the supervisor's loop
                os.write(2, f"cannot start the program: {error}\n".encode())
                os._exit(126)
        program.close_child_ends()
        ended = self.supervise(program, started + request["timeout"])
        usage = self.end(program, ended)
        result = program.result(usage)
        result["seconds"] = time.monotonic() - started
        return result, program.output[0], program.output[1]

    def supervise(self, program: Program, deadline: float) -> bool:
        """Wait for the end of the main process, and collect its output meanwhile. Returns whether it ended."""
        poll, fds = select.poll(), {}
        pidfd = os.pidfd_open(program.pid)
        for stream, fd in enumerate(program.readers):
            poll.register(fd, select.POLLIN)
            fds[fd] = stream
        poll.register(pidfd, select.POLLIN)
        poll.register(self.host.socket, select.POLLRDHUP | select.POLLHUP)
        try:
            while True:
                left = deadline - time.monotonic()
                if left <= 0:
                    program.stopped = "timed_out"
                    return False
                for fd, _ in poll.poll(min(left, LOOK) * 1000 + 1):
                    if fd == pidfd:
                        return True
                    if fd not in fds:
                        os._exit(0)  # the host is gone
                    if not program.take(fds[fd], fd):
                        poll.unregister(fd)
                program.stopped = self.over_limit(program)
                if program.stopped:
                    return False
        finally:
            os.close(pidfd)

    def over_limit(self, program: Program) -> str | None:
        """The limit that the program has passed, if any."""
        if program.drained > DRAIN_BYTES:
            return "output"
        for path in self.writable:
            if used_files(path) - self.baseline[path] > self.limits["files"]:
                return "files"
        if self.watch_memory and used_memory() > self.limits["memory"]:
            return "out_of_memory"
        return None

    def end(self, program: Program, ended: bool) -> Any:
        """End every process of the program, take the rest of its output, and return what the main process used."""
        if not ended:
            self.kill(program.pid)
        _, program.status, usage = os.wait4(program.pid, 0)
        if not self.background:
            self.end_all()
        for stream, fd in enumerate(program.readers):
            os.set_blocking(fd, False)
            while program.take(stream, fd):
                if program.drained > DRAIN_BYTES:
                    break
            os.close(fd)
        return usage

    def kill(self, pid: int) -> None:
        """End the processes of one program, or all where none may stay in the background."""
        if not self.background:
            self.kill_all()
        for target in (-pid, pid):
            try:
                os.kill(target, signal.SIGKILL)
            except OSError:
                pass

    def kill_all(self) -> None:
        """Send SIGKILL to every process but this one."""
        if self.alone:
            try:
                os.kill(-1, signal.SIGKILL)
            except ProcessLookupError:
                pass
            return
        for pid in descendants():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def end_all(self) -> None:
        """End every process but this one. Orphans become children of this process, so none is missed."""
        while not self.reap():
            self.kill_all()
            try:
                os.waitpid(-1, 0)
            except ChildProcessError:
                return

    def reap(self) -> bool:
        """Collect what has ended. Returns whether no process is left."""
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
            return False
        except ChildProcessError:
            return True

    def reset(self) -> bool:
        """End all processes and remove all files. Returns whether the sandbox is as it was when it opened."""
        self.end_all()
        for path in self.writable:
            if not empty(path):
                return False
            tidy(path)
        os.chdir(self.home)
        return all(used_files(path) <= count for path, count in self.baseline.items())

    def become(self, program: Program) -> NoReturn:
        """In the child: turn into the program."""
        os.setsid()
        for number, fd in enumerate(program.child_ends):
            os.dup2(fd, number)
        os.closerange(3, 4096)
        for name in ("SIGPIPE", "SIGXFSZ", "SIGINT"):
            signal.signal(getattr(signal, name), signal.SIG_DFL)
        self.limit(program.request["timeout"])
        environ = {**self.environ, **(program.request.get("env") or {})}
        os.chdir(os.path.join(self.home, program.request.get("cwd") or ""))
        if program.request["op"] == "python":
            os.environ.clear()
            os.environ.update(environ)
            run_python(program.source, program.request["argv"], self.home)
        argv = program.request["argv"]
        try:
            os.execvpe(argv[0], argv, environ)
        except OSError as error:
            os.write(2, f"{argv[0]}: {error.strerror}\n".encode())
            os._exit(126 if isinstance(error, PermissionError) else 127)

    def limit(self, timeout: float) -> None:
        """Set the limits of this process, which its children inherit."""
        limits, disk = self.limits, self.limits["disk"]
        for name, value in (
            ("CORE", 0),
            ("CPU", int(timeout) + 2),
            ("DATA", limits["memory"] if self.watch_memory else resource.RLIM_INFINITY),
            ("FSIZE", disk),
            ("NOFILE", limits["open_files"]),
            ("NPROC", limits["processes"]),
            ("MEMLOCK", 1 << 16),
            ("MSGQUEUE", 0),
        ):
            number = getattr(resource, f"RLIMIT_{name}")
            hard = resource.getrlimit(number)[1]
            value = hard if value == resource.RLIM_INFINITY else value
            value = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.setrlimit(number, (value, value))


class Program:
    """One program: its pipes, its output so far, and how it ended."""

    def __init__(self, request: dict[str, Any], body: bytes) -> None:
        self.request = request
        size = request.get("source", 0)
        self.source, stdin = body[:size], body[size:]
        self.limit = request["output"]
        self.output, self.cut, self.drained = [bytearray(), bytearray()], False, 0
        self.pid, self.status = 0, 0
        self.stopped: str | None = None
        out, err = os.pipe(), os.pipe()
        self.readers = [out[0], err[0]]
        self.child_ends = [file_of(stdin), out[1], err[1]]

    def close_child_ends(self) -> None:
        """In the parent: close what only the program uses."""
        for fd in self.child_ends:
            os.close(fd)

    def take(self, stream: int, fd: int) -> bool:
        """Read from a pipe once. Returns whether there may be more."""
        try:
            data = os.read(fd, 1 << 16)
        except BlockingIOError:
            return False
        kept = self.output[stream]
        room = self.limit - len(kept)
        kept += data[:room]
        if len(data) > room:
            self.cut = True
            self.drained += len(data) - room
        return bool(data)

    def result(self, usage: Any) -> dict[str, Any]:
        """How the program ended, for the host."""
        status, stopped = self.status, self.stopped
        return {
            "exit_code": os.WEXITSTATUS(status) if os.WIFEXITED(status) and not stopped else None,
            "signal": os.WTERMSIG(status) if os.WIFSIGNALED(status) and not stopped else None,
            "timed_out": stopped == "timed_out" or (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU),
            "out_of_memory": stopped == "out_of_memory" or (status != 0 and b"\nMemoryError" in self.output[1][-200:]),
            "limit": stopped if stopped in ("files", "output") else None,
            "output_cut": self.cut,
            "cpu_seconds": usage.ru_utime + usage.ru_stime,
            "stdout": len(self.output[0]),
        }


def file_of(data: bytes) -> int:
    """A file descriptor from which a program can read these bytes."""
    if not data:
        return os.open(os.devnull, os.O_RDONLY)
    fd = os.memfd_create("stdin")
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def run_python(source: bytes, argv: list[str], home: str) -> NoReturn:
    """Run a program as `python3 main.py` would, then end the process."""
    import _sitebuiltins
    import builtins
    import io
    import types

    sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, "r")), "utf-8", "surrogateescape")
    sys.stdout = io.TextIOWrapper(io.BufferedWriter(io.FileIO(1, "w")), "utf-8", "surrogateescape")
    unbuffered = io.BufferedWriter(io.FileIO(2, "w"))
    sys.stderr = io.TextIOWrapper(unbuffered, "utf-8", "backslashreplace", line_buffering=True)
    vars(sys).update(__stdin__=sys.stdin, __stdout__=sys.stdout, __stderr__=sys.stderr)
    builtins.exit = _sitebuiltins.Quitter("exit", "Ctrl-D")
    builtins.quit = _sitebuiltins.Quitter("quit", "Ctrl-D")
    sys.argv = ["main.py", *argv]
    sys.path.insert(0, home)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # as Python sets it
    main = types.ModuleType("__main__")
    main.__dict__.update(__file__="main.py", __builtins__=builtins)
    sys.modules["__main__"] = main
    code = 1
    try:
        exec(compile(source, "main.py", "exec"), main.__dict__)
        code = 0
    except SystemExit as end:
        code = exit_code(end.code)
    except BaseException as error:
        show(error, source)
    finish(code)


def exit_code(given: Any) -> int:
    """The exit code of `sys.exit(given)`."""
    if given is None:
        return 0
    if isinstance(given, int):
        return given & 0xFF
    print(given, file=sys.stderr)
    return 1


def show(error: BaseException, source: bytes) -> None:
    """Print the traceback from the program's own first line on."""
    import linecache
    import traceback

    text = source.decode("utf-8", "replace")
    linecache.cache["main.py"] = (len(text), None, text.splitlines(True), "main.py")
    below = error.__traceback__.tb_next if error.__traceback__ is not None else None
    try:
        traceback.print_exception(type(error), error, below)
    except BaseException:
        os.write(2, type(error).__name__.encode())


def finish(code: int) -> NoReturn:
    """End as the interpreter does: wait for threads, run exit handlers, flush."""
    try:
        if "threading" in sys.modules:
            sys.modules["threading"]._shutdown()
        if "atexit" in sys.modules:
            sys.modules["atexit"]._run_exitfuncs()
    except BaseException:
        pass
    try:
        sys.stdout.flush()
    except BaseException:
        code = code or 120
    try:
        sys.stderr.flush()
    except BaseException:
        pass
    os._exit(code)


def used_files(path: str) -> int:
    """How many files the file system of a path holds."""
    found = os.statvfs(path)
    return found.f_files - found.f_ffree


def used_memory() -> int:
    """The resident memory of the processes that descend from this one."""
    pages = 0
    for pid in descendants():
        try:
            with open(f"/proc/{pid}/statm") as file:
                pages += int(file.read().split()[1])
        except (OSError, IndexError):
            pass
    return pages * resource.getpagesize()


def descendants() -> set[int]:
    """The processes that descend from this one."""
    parents: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    parents[int(name)] = int(file.read().rpartition(b")")[2].split()[1])
            except (OSError, IndexError, ValueError):
                pass
    found: set[int] = set()
    new = {os.getpid()}
    while new:
        new = {pid for pid, parent in parents.items() if parent in new} - found
        found |= new
    return found


def empty(path: str, budget: int = 10_000, depth: int = 64) -> bool:
    """Remove everything in a folder. Gives up, and returns False, if that takes too long or goes too deep."""
    folders = [path]
    while folders:
        folder = folders[-1]
        try:
            os.chmod(folder, 0o700)
            entries = list(os.scandir(folder))
        except OSError:
            return False
        inner = [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
        budget -= len(entries) + 1
        if budget < 0 or folder.count("/") > depth:
            return False
        try:
            for entry in entries:
                if not entry.is_dir(follow_symlinks=False):
                    os.unlink(entry.path)
            if inner:
                folders += inner
            else:
                folders.pop()
                if folder != path:
                    os.rmdir(folder)
        except OSError:
            return False
    return True


def tidy(path: str) -> None:
    """Set what else can carry state on a folder that stays: its mode, times and extended attributes."""
    try:
        for name in os.listxattr(path):
            os.removexattr(path, name)
    except OSError:
        pass
    os.chmod(path, 0o700)
    os.utime(path, (0, 0))


def main() -> NoReturn:
    """Get ready, then serve."""
    host = Host(os.dup(0))
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.close(null)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)  # nobody may trace this process or look at its files
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    setup, _ = host.receive()
    sys.path[:] = [*setup["packages"], *(path for path in sys.path if path)]
    os.environ.clear()
    os.environ.update(setup["env"])
    os.chdir(setup["home"])
    try:
        for name in setup["preload"]:
            __import__(name)
    except BaseException as error:
        host.send({"ready": False, "cause": f"cannot import {name}: {error}"})
        os._exit(1)
    Supervisor(host, setup).serve()


if __name__ == "__main__":
    main()
