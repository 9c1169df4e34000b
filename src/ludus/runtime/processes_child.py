"""The child process of `processes.py`: a program that runs functions for its parent, one at a time.

It imports little, so that it starts in milliseconds, and never imports the parent's `__main__`. Prints of a function
are discarded. Two signals end the process, even inside C code that never returns to Python: SIGPROF when a call has
used up its processor time, and SIGIO when the parent is gone. Both keep their default action: terminate.
"""

from __future__ import annotations

import fcntl
import importlib
import importlib.util
import os
import pickle
import resource
import select
import signal
import sys
import traceback
import types
from array import array
from collections.abc import Callable, Iterator
from typing import Any

from ludus.runtime.frames import HEADER, frame_start

Parts = list[bytearray]

MOST_PARTS = 64  #: buffers per system call; the kernel's limit is 1,024


def packed(message: Any) -> list[memoryview]:
    """A message as it is sent: a frame whose head holds the lengths of its parts, and whose body is the parts.

    The first part is a pickle. A `pickle.PickleBuffer` in the message becomes its own part and is never copied. Do not
    wrap a memoryview in it: if garbage collection frees both at once, Python 3.11 crashes.
    """
    buffers: list[pickle.PickleBuffer] = []
    data = pickle.dumps(message, 5, buffer_callback=buffers.append)
    parts = [memoryview(data), *(buffer.raw() for buffer in buffers)]
    lengths = array("Q", map(len, parts))
    return [memoryview(frame_start(lengths.tobytes(), sum(lengths))), *(part for part in parts if part)]


def without(parts: list[memoryview], sent: int) -> list[memoryview]:
    """The parts that are left after `sent` bytes."""
    for index, part in enumerate(parts):
        if sent < len(part):
            return [part[sent:], *parts[index + 1 :]]
        sent -= len(part)
    return []


def receive(parts: Parts) -> Iterator[memoryview]:
    """Yield buffers to be filled one after the other, and add the parts of one message to `parts`."""
    header = bytearray(HEADER.size)
    yield memoryview(header)
    lengths = bytearray(HEADER.unpack(header)[0])
    yield memoryview(lengths)
    for length in memoryview(lengths).cast("Q"):
        part = bytearray(length)
        if part:
            yield memoryview(part)
        parts.append(part)


def unpacked(parts: Parts) -> Any:
    """The message that was sent. A buffer arrives as a bytearray, or as a memoryview if it was read-only."""
    return pickle.loads(parts[0], buffers=parts[1:])


class Channel:
    """The socket to the parent."""

    def __init__(self) -> None:
        self.fd = os.dup(0)
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        os.close(null)
        self._flags = fcntl.fcntl(self.fd, fcntl.F_GETFL)
        fcntl.fcntl(self.fd, fcntl.F_SETOWN, os.getpid())
        if sys.platform != "linux":  # elsewhere SIGIO is ignored by default
            signal.signal(signal.SIGIO, lambda *_: os._exit(1))

    def read(self) -> Any:
        """The next message."""
        return unpacked(self.parts())

    def parts(self) -> Parts:
        """The next message, still packed. If the parent is gone, the process ends here."""
        parts: Parts = []
        for missing in receive(parts):
            while missing:
                count = os.readv(self.fd, [missing])
                if not count:
                    os._exit(0)
                missing = missing[count:]
        return parts

    def write(self, message: list[memoryview]) -> None:
        """Send one message."""
        while message:
            message = without(message, os.writev(self.fd, message[:MOST_PARTS]))

    def watch(self, on: bool) -> None:
        """Ask for SIGIO on socket events. The parent sends nothing while a call runs, so an event means it is gone."""
        fcntl.fcntl(self.fd, fcntl.F_SETFL, self._flags | os.O_ASYNC if on else self._flags)
        if on and select.select([self.fd], [], [], 0)[0]:
            os._exit(1)


def load(module: str, file: str | None, name: str) -> Callable[..., Any]:
    """A function by its module and name. A module that cannot be imported by name is loaded from its file."""
    if module not in sys.modules:
        try:
            importlib.import_module(module)
        except ModuleNotFoundError as error:
            if file is None or not f"{module}.".startswith(f"{error.name}."):
                raise  # the module exists, but one of its imports does not
            make_package(module.rpartition(".")[0], os.path.dirname(file))
            spec = importlib.util.spec_from_file_location(module, file)
            if spec is None or spec.loader is None:
                raise
            loaded = sys.modules[module] = importlib.util.module_from_spec(spec)
            try:
                spec.loader.exec_module(loaded)
            except BaseException:
                del sys.modules[module]
                raise
    function: Any = sys.modules[module]
    for part in name.split("."):
        function = getattr(function, part)
    return function  # type: ignore[no-any-return]


def make_package(name: str, folder: str) -> None:
    """Make a folder importable as a package, if it is not, so that its files can import each other."""
    if name and name not in sys.modules:
        package = sys.modules[name] = types.ModuleType(name)
        package.__path__ = [folder]


def answer(channel: Channel, function: Callable[..., Any], args: Parts, seconds: float) -> list[memoryview]:
    """Run one call within `seconds` of processor time, and return its result or its exception, packed."""
    try:
        arguments = unpacked(args)
        channel.watch(True)
        signal.setitimer(signal.ITIMER_PROF, seconds)
        try:
            result = function(*arguments)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            channel.watch(False)
        return packed((True, result))
    except BaseException as error:
        return failed(error)


def failed(error: BaseException) -> list[memoryview]:
    """An exception, packed. One that cannot be pickled and unpickled becomes a RuntimeError with its text."""
    try:
        if isinstance(error, Exception):
            error.add_note(f"In a child process:\n{''.join(traceback.format_tb(error.__traceback__))}")
            pickle.loads(pickle.dumps((False, error)))
            return packed((False, error))
    except Exception:
        pass
    return packed((False, RuntimeError(f"{type(error).__name__}: {error!s:.1000}")))


def main() -> None:
    """Serve until the parent is gone. The first message holds `sys.path` and the memory limit.

    Later messages name a function and a limit of processor time. A known function is called with the arguments in the
    next message; an unknown one is imported.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    channel = Channel()
    sys.path[:], memory = channel.read()
    if memory is not None:
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        limit = memory if hard == resource.RLIM_INFINITY else min(memory, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))
    functions: dict[Any, Callable[..., Any]] = {}
    while True:
        target, seconds = channel.read()
        if target in functions:
            channel.write(answer(channel, functions[target], channel.parts(), seconds))
            continue
        try:
            functions[target] = load(*target)
            channel.write(packed((True, None)))
        except BaseException as error:
            channel.write(failed(error))
