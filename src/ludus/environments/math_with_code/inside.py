"""A Python session inside a sandbox: a process that keeps its variables, and a client that hands it one piece of code.

The text of this file runs inside, first as `start` and then as `run` for each piece of code. Session and client talk
through a socket in the file system. The session stops code after a limit of CPU time and keeps its variables. If code
does not stop, the client ends the session.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import select
import signal
import socket
import struct
import sys
import types
from typing import Any, NoReturn

ADDRESS = "/tmp/.session"
PID = "/tmp/.session.pid"
HEADER = struct.Struct("!I")
MOST = 100_000  # characters of each text in a reply; the rest is cut off
GRACE = 2.0  # seconds in which interrupted code has to stop
ALIASES = {"numpy": "np", "pandas": "pd", "scipy": "scipy"}


class TimeUp(BaseException):
    """Raised in code whose time is up. No `except Exception` catches it."""


def start() -> None:
    """Start the session in the background, and return when it listens."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(ADDRESS)
    listener.listen()
    pid = os.fork()
    if pid:
        with open(PID, "w") as file:  # not by the child: `run` needs it at once
            file.write(str(pid))
        return
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    serve(listener)


def serve(listener: socket.socket) -> NoReturn:
    """Run one piece of code after the other."""
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    names = vars(main)
    for name, alias in ALIASES.items():
        module = sys.modules.get(name) or lazy(name)
        if module is not None:
            names[name] = names[alias] = module
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    while True:
        link, _ = listener.accept()
        with link:
            asked = receive(link)
            if asked is not None:
                send(link, perform(asked["code"], asked["seconds"], names))


def lazy(name: str) -> types.ModuleType | None:
    """A module that is loaded when code first uses it; None if it is not installed."""
    spec = importlib.util.find_spec(name)
    if spec is None or spec.loader is None:
        return None
    spec.loader = importlib.util.LazyLoader(spec.loader)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def time_up(*_: Any) -> None:
    """Interrupt the code that runs."""
    raise TimeUp


def perform(code: str, seconds: float, names: dict[str, Any]) -> dict[str, Any]:
    """Run code, and return what the model sees of it."""
    files = [os.memfd_create(name) for name in ("stdout", "stderr")]
    for descriptor, file in enumerate(files, start=1):
        os.dup2(file, descriptor)
    sys.stdin = open(os.devnull)  # noqa: SIM115 (code may have closed it, as exit() does)
    error: str | None = None
    result: str | None = None
    try:
        try:
            signal.signal(signal.SIGPROF, time_up)
            signal.signal(signal.SIGALRM, time_up)
            signal.setitimer(signal.ITIMER_PROF, seconds)
            result = evaluate(code, names)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
    except TimeUp:
        error = "code timed-out"
    except SystemExit as end:
        error = None if end.code in (None, 0) else f"SystemExit: {end.code}"
    except BaseException as raised:
        error = message_of(raised)
    texts = [text_of(file, stream) for file, stream in zip(files, (sys.stdout, sys.stderr), strict=True)]
    shown = result if error is None else None
    return {"success": error is None, "stdout": texts[0], "stderr": texts[1], "error_message": error, "result": shown}


def evaluate(code: str, names: dict[str, Any]) -> str | None:
    """Run code. If its last statement is an expression, return the text of its value, unless that is None."""
    tree = ast.parse(code, "<string>")
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "<string>", "exec"), names)
    if not isinstance(last, ast.Expr):
        return None
    value = eval(compile(ast.Expression(last.value), "<string>", "eval"), names)
    return None if value is None else cut(str(value))


def message_of(raised: BaseException) -> str:
    """The text of an exception, or its type if it has none."""
    try:
        return cut(str(raised)) or type(raised).__name__
    except BaseException:
        return type(raised).__name__


def text_of(file: int, stream: Any) -> str:
    """What was written to a stream, and to its file descriptor."""
    try:
        stream.flush()
    except BaseException:
        pass
    data = os.pread(file, 4 * MOST + 1, 0)
    os.close(file)
    return cut(data.decode("utf-8", "replace"))


def cut(text: str) -> str:
    """A text that is not too long."""
    return text if len(text) <= MOST else f"{text[:MOST]}... cut off after {MOST} characters"


def run() -> None:
    """Hand code to the session, wait, and print its reply."""
    asked = json.load(sys.stdin)
    with open(PID) as file:
        pid = int(file.read())
    link = socket.socket(socket.AF_UNIX)
    link.connect(ADDRESS)
    send(link, asked)
    if not waited(link, 3 * asked["seconds"] + 2):
        os.kill(pid, signal.SIGALRM)
        if not waited(link, GRACE):
            os.kill(pid, signal.SIGKILL)
            print('"killed"')
            return
    print(json.dumps(receive(link)))


def waited(link: socket.socket, seconds: float) -> bool:
    """Wait for a reply. Returns whether there is one."""
    return bool(select.select([link], [], [], seconds)[0])


def send(link: socket.socket, message: dict[str, Any]) -> None:
    """Send one message."""
    text = json.dumps(message).encode()
    try:
        link.sendall(HEADER.pack(len(text)) + text)
    except OSError:
        pass


def receive(link: socket.socket) -> dict[str, Any] | None:
    """The next message; None if the other side is gone."""
    data = bytearray()
    size = HEADER.size
    while len(data) < size:
        try:
            part = link.recv(1 << 16)
        except OSError:
            return None
        if not part:
            return None
        data += part
        if size == HEADER.size and len(data) >= size:
            size += HEADER.unpack(data[: HEADER.size])[0]
    message: dict[str, Any] = json.loads(data[HEADER.size :])
    return message


if __name__ == "__main__":
    {"start": start, "run": run}[sys.argv[1]]()
