"""The first process inside a sandbox: it runs programs for the host, one at a time, and ends all that they started.

As process 1 of its own pid namespace it cannot be killed or traced from inside; `guard.py` sees to that elsewhere. A
Python program runs in a fork of this interpreter, which saves the start of a new one. So this process keeps nothing of
a program: neither its text nor its output, nor the names of its files and processes (see `relay.py`).
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
import sys
import time
from collections.abc import Sequence
from typing import Any, NoReturn

from ludus.runtime.frames import HEADER, frame_start
from ludus.sandbox.inside.folders import empty, reset_metadata, used_files
from ludus.sandbox.inside.guard import keep_away
from ludus.sandbox.inside.processes import descendants, prefer_oom_kill, used_memory
from ludus.sandbox.inside.program import Running
from ludus.sandbox.inside.python import run_python
from ludus.sandbox.inside.relay import Relay

POLL_SECONDS = 0.05  # between two looks at files and memory while a program runs
DRAIN_BYTES = 64 << 20  # a program that writes this much more than its limit is stopped
PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 4, 36, 38


class Host:
    """The socket to the host. A message is a JSON object and some bytes."""

    def __init__(self, fd: int) -> None:
        self.socket = socket.socket(fileno=fd)
        self.relay = Relay(self.socket)

    def receive(self) -> tuple[dict[str, Any], int]:
        """The JSON object of the next message, and how many bytes follow."""
        head, body = HEADER.unpack(self.exactly(HEADER.size))
        return json.loads(self.exactly(head)), body

    def send(self, head: dict[str, Any], size: int = 0, files: Sequence[tuple[int, int]] = ()) -> None:
        """Send one message. Its bytes come from files in memory, each with the place of its first byte."""
        self.socket.sendall(frame_start(json.dumps(head).encode(), size))
        for fd, first in files:
            self.relay.send(fd, first)

    def exactly(self, length: int) -> bytes:
        """The next bytes. Raises `EOFError` if the host is gone."""
        data = bytearray()
        while len(data) < length:
            part = self.socket.recv(min(length - len(data), 1 << 20))
            if not part:
                raise EOFError
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
        self.guard = setup["guard"] and bytes.fromhex(setup["guard"])
        self.alone = os.getpid() == 1 or setup["own_user"]  # kill(-1) reaches the programs and nothing else
        self.baseline: dict[str, int] = {}
        self.most_files: dict[str, int] = {}  # at most while the running program runs
        self.modes = {path: os.stat(path).st_mode for path in (*self.writable, *setup["kept"])}

    def serve(self) -> NoReturn:
        """Answer requests, one at a time."""
        for path, mode in self.modes.items():
            reset_metadata(path, mode)
        self.baseline = {path: used_files(path) for path in self.writable}
        gc.collect()
        gc.freeze()  # a fork that collects garbage would copy these pages
        self.host.send({"ready": True, "version": sys.version_info[:3]})
        try:
            while True:
                if self.background:
                    self.wait_for_request()
                request, size = self.host.receive()
                if request["op"] == "reset":
                    self.host.send({"clean": self.reset()})
                elif request["op"] == "end":
                    self.end_all()
                    self.host.send({"ended": True})
                elif request["op"] != "stop":  # a program that has ended cannot be stopped any more
                    self.run(request, size)
        finally:  # the host is gone, or something is wrong here: nothing may go on without a supervisor
            self.kill_all()
            os._exit(0)

    def wait_for_request(self) -> None:
        """Reap orphans while there is nothing to do, and before the next program."""
        self.reap()
        while not select.select([self.host.socket], [], [], 1.0)[0]:
            self.reap()

    def run(self, request: dict[str, Any], size: int) -> None:
        """Run one program to its end, and tell the host how it ended."""
        program = Running(request, size, self.host.relay)
        self.host.relay.wipe()
        # What an earlier program left counts, but stops only a program that adds to it.
        most = self.limits["files"]
        self.most_files = {path: max(files + most, used_files(path)) for path, files in self.baseline.items()}
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
        files = [(fd, program.first(stream)) for stream, fd in enumerate(program.output)]
        self.host.send(result, program.printed(0) + program.printed(1), files)

    def supervise(self, program: Running, deadline: float) -> bool:
        """Wait for the end of the main process, and collect its output meanwhile. Returns whether it ended."""
        poll, fds = select.poll(), {}
        pidfd = os.pidfd_open(program.pid)
        for stream, fd in enumerate(program.readers):
            poll.register(fd, select.POLLIN)
            fds[fd] = stream
        poll.register(pidfd, select.POLLIN)
        poll.register(self.host.socket, select.POLLIN | select.POLLRDHUP | select.POLLHUP)
        try:
            while True:
                left = deadline - time.monotonic()
                if left <= 0:
                    program.stopped = "timed_out"
                    return False
                for fd, _ in poll.poll(min(left, POLL_SECONDS) * 1000 + 1):
                    if fd == pidfd:
                        return True
                    if fd not in fds:
                        if self.host.receive()[0]["number"] == program.request["number"]:  # else of an earlier one
                            program.stopped = "stopped"
                            return False
                    elif not program.take(fds[fd], fd):
                        poll.unregister(fd)
                self.reap_orphans(program.pid)
                program.stopped = self.over_limit(program)
                if program.stopped:
                    return False
        finally:
            os.close(pidfd)

    def over_limit(self, program: Running) -> str | None:
        """The limit that the program has passed, if any."""
        if program.drained > DRAIN_BYTES:
            return "output"
        for path in self.writable:
            if used_files(path) > self.most_files[path]:
                return "files"
        if self.watch_memory and used_memory(self.host.relay) > self.limits["memory"]:
            return "out_of_memory"
        return None

    def end(self, program: Running, ended: bool) -> Any:
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
        for pid in descendants(self.host.relay):
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
        """Reap the processes that have ended. Returns whether no process is left."""
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
            return False
        except ChildProcessError:
            return True

    def reap_orphans(self, main: int) -> None:
        """Reap orphans that have ended while a program runs: they count against its limit of processes."""
        try:
            while ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                if ended.si_pid == main:
                    return
                os.waitpid(ended.si_pid, 0)
        except ChildProcessError:
            return

    def reset(self) -> bool:
        """End all processes and remove all files. Returns whether the sandbox is as it was when it opened."""
        self.end_all()
        pid = os.fork()
        if pid == 0:  # names of files and attributes stay in this child
            try:
                clean = all(map(empty, self.writable))
                for path, mode in self.modes.items():
                    reset_metadata(path, mode)
                os._exit(0 if clean else 1)
            finally:
                os._exit(1)
        if os.waitpid(pid, 0)[1] != 0:
            return False
        os.chdir(self.home)
        return all(used_files(path) <= count for path, count in self.baseline.items())

    def become(self, program: Running) -> NoReturn:
        """In the child: turn into the program."""
        start, source = program.parts()
        os.setsid()
        for number, fd in enumerate(program.child_ends):
            os.dup2(fd, number)
        os.closerange(3, 4096)
        for name in ("SIGPIPE", "SIGXFSZ", "SIGINT"):
            signal.signal(getattr(signal, name), signal.SIG_DFL)
        prctl(PR_SET_DUMPABLE, 1)  # as in a process of its own: it may look at itself in /proc
        prefer_oom_kill()
        if self.guard:
            keep_away(_LIBC, self.guard)
        self.limit(program.request["timeout"])
        environ, argv = {**self.environ, **start["env"]}, start["argv"]
        os.chdir(os.path.join(self.home, start["cwd"] or ""))
        if program.request["op"] == "python":
            os.environ.clear()
            os.environ.update(environ)
            run_python(source, argv, self.home)
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


_LIBC = ctypes.CDLL(None)  # opened here, not again by every program


def prctl(option: int, value: int) -> None:
    """Set an attribute of this process."""
    _LIBC.prctl(option, value, 0, 0, 0)


def main() -> NoReturn:
    """Get ready, then serve."""
    host = Host(os.dup(0))
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.close(null)
    prctl(PR_SET_DUMPABLE, 0)  # nobody may trace this process or look at its files
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    prctl(PR_SET_NO_NEW_PRIVS, 1)
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
