"""Forks commands from a process that has imported everything: a start costs 30 ms in place of 400.

    python tests/command_server.py SOCKET LIFELINE

Each connection to SOCKET is one command: a header of eight bytes, the files of its standard streams, and its entry
point, arguments, folder and variables as `marshal` writes them. The server answers with the process id, and later with
the exit status. A command is a process of its own, with its own exit, signals, streams and modules. The server ends
with the process that holds the other end of the pipe LIFELINE.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import marshal
import os
import select
import signal
import socket
import struct
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any

#: What commands import when they run. A module that is missing here is imported by each command that needs it.
MODULES = """
    asyncio uvloop rich.console rich.table rich.progress rich.markdown ludus.collection.api ludus.rescore.rescoring
    ludus_qualify.recall ludus.compare.comparison ludus_bench.profile.profile ludus_data.validate ludus_data.prepare
    ludus_data.export.exporting ludus_data.convert ludus_qualify.run ludus_credit.crediting ludus.serve.serving
    ludus.models.openai ludus.models.scripted ludus.agents.simple ludus.agents.single_turn ludus.remote.wiring
    ludus.testing ludus_nemo_gym.gym
"""

HEADER = struct.Struct("<Q")
STATUS = struct.Struct("<i")


def serve(path: str, lifeline: int) -> Callable[[], None]:
    """Fork commands until the lifeline ends. Returns in each forked process, with the function that it runs."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(64)
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(woken, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    running: dict[int, socket.socket] = {}
    print("ready", flush=True)
    while True:
        readable, _, _ = select.select([listener, lifeline, woken], [], [])
        if lifeline in readable:
            raise SystemExit
        if woken in readable:
            os.read(woken, 1024)
            _report_ended(running)
        if listener in readable:
            connection, _ = listener.accept()
            order, streams = _receive(connection)
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                for number in (woken, wake, lifeline):
                    os.close(number)
                for held in (listener, connection, *running.values()):
                    held.close()
                return _become(order, streams)
            for number in streams:
                os.close(number)
            running[pid] = connection
            connection.sendall(STATUS.pack(pid))


def _receive(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    header, streams, _, _ = socket.recv_fds(connection, HEADER.size, 3)
    (left,) = HEADER.unpack(header)
    data = b""
    while len(data) < left:
        data += connection.recv(left - len(data))
    order: dict[str, Any] = marshal.loads(data)
    return order, streams


def _report_ended(running: dict[int, socket.socket]) -> None:
    while running:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        with running.pop(pid) as connection:
            try:
                connection.sendall(STATUS.pack(os.waitstatus_to_exitcode(status)))
            except OSError:  # the test waits no more
                pass


def _become(order: dict[str, Any], streams: list[int]) -> Callable[[], None]:
    """Take the streams, folder, variables and arguments of a command, as `python -m ludus` would find them."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["env"])
    encoding, _, errors = os.environ.get("PYTHONIOENCODING", "utf-8").partition(":")
    sys.stdin = sys.__stdin__ = open(0, encoding=encoding, closefd=False)  # type: ignore[misc]  # noqa: SIM115
    sys.stdout = sys.__stdout__ = open(1, "w", encoding=encoding, errors=errors or None, closefd=False)  # type: ignore[misc]  # noqa: SIM115
    sys.stderr = sys.__stderr__ = open(  # type: ignore[misc]  # noqa: SIM115
        2, "w", encoding=encoding, errors="backslashreplace", buffering=1, closefd=False
    )
    extra = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    sys.path[:1] = [os.getcwd(), *extra]
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    name, _, function = order["entry_point"].partition(":")
    module = importlib.import_module(name)
    sys.argv = [module.__file__ or "" if name == "ludus.__main__" else "-c", *order["arguments"]]
    command: Callable[[], None] = getattr(module, function)
    return command


def main() -> None:
    from ludus.cli import command_line

    command_line()  # imports every command
    for name in MODULES.split():
        try:
            importlib.import_module(name)
        except ImportError:
            pass
    sys.dont_write_bytecode = True  # a test may change a file twice in the second in which bytecode counts as fresh
    gc.freeze()
    os._exit(_exit_code(serve(sys.argv[1], int(sys.argv[2]))))


def _exit_code(command: Callable[[], None]) -> int:
    """Run a command and what a process does at its end. Freeing every module is left out: it would cost 300 ms."""
    code: Any = 0
    try:
        command()
    except SystemExit as ended:
        code = ended.code
    except BaseException:
        traceback.print_exc()
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stderr.flush()
    try:
        sys.stdout.flush()
    except OSError:
        return 120
    return code if isinstance(code, int) else int(code is not None)


if __name__ == "__main__":
    main()
