"""The code under test in a process of its own, with stand-ins for its modules where the tests run.

No code of the repository runs beside the tests, so it cannot reach their frames, their tools or their reports. The code
may call what a test hands it, and read its public attributes. It gets nothing else of the tests. `crossing.py` says how
values get from one process to the other. The host sends the text of both files into the sandbox.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import json
import os
import queue
import struct
import sys
import threading
import types
from typing import Any, cast

from ludus.graders.repository.crossing import DESCRIPTIVE, PEERS, SPECIAL, RemoteModule, Values

CHANNELS = 12  # threads of the tests that call the code at the same time
#: What the code may hold but not look into: through these it would reach the test's own code, frames and imports.
CLOSED = (types.ModuleType, types.FrameType, types.CodeType, types.TracebackType)
CLOSED_PACKAGES = {"_pytest", "pluggy", "importlib", "_frozen_importlib", "_frozen_importlib_external"}
#: Methods of `unittest.mock` that would let the code replace the test's own assertions.
CONFIGURING = {"configure_mock", "mock_add_spec", "attach_mock", "reset_mock"}


class Finder:
    """Imports every module of the checkout from the other process, except the files of the tests."""

    def __init__(self, folder: str, own: list[str]) -> None:
        self.own = {os.path.join(folder, path) for path in own}
        self.places = [place for place in (folder, os.path.join(folder, "src")) if os.path.isdir(place)]
        self.elsewhere = [place for place in sys.path if place not in self.places]

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """The spec of a module of the checkout; None for all others, also for one that hides a module of Python."""
        if self._is_elsewhere(name.partition(".")[0]):
            return None
        for place in self.places:
            stem = os.path.join(place, *name.split("."))
            files = (os.path.join(stem, "__init__.py"), f"{stem}.py")
            if any(file in self.own for file in files):
                return None
            if any(os.path.isfile(file) for file in files):
                return importlib.machinery.ModuleSpec(name, cast("Any", self), is_package=os.path.isfile(files[0]))
        return None

    def _is_elsewhere(self, top: str) -> bool:
        """Whether Python or an installed package has the module: the checkout comes last on the path."""
        if top in sys.builtin_module_names or top in sys.stdlib_module_names:
            return True
        spec = importlib.machinery.PathFinder.find_spec(top, self.elsewhere)
        return spec is not None and spec.loader is not None  # a folder without __init__.py hides nothing

    def create_module(self, spec: Any) -> Any:
        """A stand-in for the module."""
        module = RemoteModule(spec.name)
        vars(module)["remote"] = PEERS[0].ask("module", spec.name)
        return module

    def exec_module(self, module: Any) -> None:
        """The module was run in the other process."""


class Pipe:
    """One conversation between a thread of the tests and a thread of the code."""

    def __init__(self, source: int, sink: int) -> None:
        self.source, self.sink = source, sink

    def send(self, message: Any) -> None:
        """Send one message."""
        data = json.dumps(message).encode()
        data = struct.pack("!Q", len(data)) + data
        while data:
            data = data[os.write(self.sink, data) :]

    def receive(self) -> Any:
        """Wait for one message."""
        (size,) = struct.unpack("!Q", self._read(8))
        return json.loads(self._read(size))

    def _read(self, size: int) -> bytes:
        parts = []
        while size:
            part = os.read(self.source, min(size, 1 << 20))
            if not part:
                raise SystemExit("the process of the code under test has ended")
            parts.append(part)
            size -= len(part)
        return b"".join(parts)


class PipeOfThread:
    """The pipe of a thread. It is free again when the thread ends."""

    def __init__(self, free: Any, number: int) -> None:
        self.free, self.number = free, number

    def __del__(self) -> None:
        self.free.put(self.number)


class Peer(Values):
    """One of the two processes: it asks the other, and answers."""

    def __init__(self, judges: bool, pipes: list[Pipe], control: int) -> None:
        super().__init__(judges)
        self.pipes, self.control = pipes, control
        self.local = threading.local()
        self.local.pipe = pipes[0]
        self.free: Any = queue.SimpleQueue()
        for number in range(1, len(pipes)):
            self.free.put(number)
        self.started: set[int] = set()

    def ask(self, operation: str, *arguments: Any) -> Any:
        """Ask the other process, and answer its questions meanwhile."""
        pipe = self._pipe()
        pipe.send(self.message(operation, arguments))
        while True:
            kind, body = self.opened(pipe.receive())
            if kind == "done":
                return body
            if kind == "raise":
                raise body
            pipe.send(self._answer(kind, body))

    def serve(self, number: int) -> None:
        """Answer the questions of one thread of the tests."""
        pipe = self.local.pipe = self.pipes[number]
        while True:
            pipe.send(self._answer(*self.opened(pipe.receive())))

    def _pipe(self) -> Pipe:
        if not hasattr(self.local, "pipe"):
            if not self.judges:
                raise RuntimeError("a thread of the code under test cannot call the test")
            number = self.free.get()
            self.local.lease, self.local.pipe = PipeOfThread(self.free, number), self.pipes[number]
            if number not in self.started:
                self.started.add(number)
                os.write(self.control, bytes([number]))
        return self.local.pipe  # type: ignore[no-any-return]

    def _answer(self, operation: str, arguments: tuple[Any, ...]) -> Any:
        try:
            if self.judges:
                self._check_allowed(operation, arguments)
            return self.message("done", getattr(self, f"do_{operation}")(*arguments))
        except BaseException as error:
            return self.message("raise", error)

    def _check_allowed(self, operation: str, arguments: tuple[Any, ...]) -> None:
        """The code under test may call what it was given, and read public attributes."""
        is_shown = any(arguments[0] is value for value in list(self.shown.values()))
        plain = operation in ("special", "text", "is_instance")
        if not is_shown or not (plain or operation == "get"):
            raise AttributeError(f"the code under test may not {operation} this")
        name = arguments[1]
        if is_closed(arguments[0]) and not (operation == "text" or name in DESCRIPTIVE):
            raise AttributeError("the code under test may not look into this")
        if operation == "get" and (name in CONFIGURING or (name.startswith("_") and name not in DESCRIPTIVE)):
            raise AttributeError(name)
        if operation == "special" and name[2:-2] not in SPECIAL:
            raise AttributeError(name)

    def do_module(self, name: str) -> Any:
        """Import a module."""
        return importlib.import_module(name)

    def do_get(self, target: Any, name: str) -> Any:
        """Read an attribute."""
        return getattr(target, name)

    def do_set(self, target: Any, name: str, value: Any) -> None:
        """Set an attribute."""
        setattr(target, name, value)

    def do_delete(self, target: Any, name: str) -> None:
        """Delete an attribute."""
        delattr(target, name)

    def do_special(self, target: Any, name: str, arguments: tuple[Any, ...], named: Any) -> Any:
        """Call a special method."""
        if name == "__call__":
            return target(*arguments, **dict(named))
        return getattr(type(target), name)(target, *arguments, **dict(named))

    def do_is_instance(self, kind: Any, value: Any) -> bool:
        """Whether a value is an instance of a class."""
        return isinstance(value, kind)

    def do_text(self, target: Any, kind: str) -> str:
        """An object as text."""
        return str(target) if kind == "str" else repr(target)

    def do_names(self, target: Any) -> list[str]:
        """The names of an object's attributes."""
        return dir(target)


def is_closed(value: Any) -> bool:
    """Whether the code under test may not look into an object, though a test handed it over."""
    return isinstance(value, CLOSED) or str(type(value).__module__).partition(".")[0] in CLOSED_PACKAGES


def fork_code() -> None:
    """Start the process of the code under test. It waits until `begin`, and has no pipe to the host."""
    there, back = ([os.pipe() for _ in range(CHANNELS)] for _ in range(2))
    control = os.pipe()
    if os.fork():
        pipes = [Pipe(answers[0], asks[1]) for asks, answers in zip(there, back, strict=True)]
        for fd in (*(asks[0] for asks in there), *(answers[1] for answers in back), control[0]):
            os.close(fd)
        import ctypes

        ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE: no other process reads this one's memory or files
        PEERS.append(Peer(True, pipes, control[1]))
        return
    try:
        for fd in (*(asks[1] for asks in there), *(answers[0] for answers in back), control[1]):
            os.close(fd)
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        os.dup2(2, 1)
        pipes = [Pipe(asks[0], answers[1]) for asks, answers in zip(there, back, strict=True)]
        PEERS.append(peer := Peer(False, pipes, control[0]))
        sys.argv[1:] = []
        os.chdir(folder := peer.pipes[0].receive())
        set_path(folder)
        threading.Thread(target=_open_channels, args=(peer,), daemon=True).start()
        peer.serve(0)
    finally:
        os._exit(1)


def _open_channels(peer: Peer) -> None:
    """Answer further threads of the tests, each in a thread of its own."""
    while number := os.read(peer.control, 1):
        threading.Thread(target=peer.serve, args=(number[0],), daemon=True).start()


def set_path(folder: str) -> None:
    """The checkout comes last, so that its files cannot take the place of other modules."""
    sys.dont_write_bytecode = True
    sys.path[:] = [path for path in sys.path if path not in ("", os.environ["HOME"], folder)]
    sys.path += [place for place in (folder, os.path.join(folder, "src")) if os.path.isdir(place)]


def begin(folder: str, own: list[str]) -> None:
    """Let the code start, and import its modules from there."""
    PEERS[0].pipes[0].send(folder)
    sys.meta_path.insert(0, Finder(folder, own))


def times_of(folder: str, own: list[str]) -> dict[str, Any]:
    """The inodes and change times of the files of the tests and of their folders, which no program can set back."""
    places = {path for path in own} | {os.path.dirname(path) for path in own} - {""}
    times: dict[str, Any] = {}
    for place in places:
        try:
            stat = os.stat(os.path.join(folder, place), follow_symlinks=False)
            times[place] = (stat.st_ino, stat.st_ctime_ns)
        except OSError:
            times[place] = None
    return times
