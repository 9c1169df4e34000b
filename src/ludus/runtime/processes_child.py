"""The child process of `processes.py`: a program that runs functions for its parent, one at a time.

It imports little, so that it starts in milliseconds, and never imports the parent's `__main__`. What a function prints
is discarded. Two signals end the process, even inside C code that never returns to Python: SIGPROF when a call has
used up its processor time, and SIGIO when the parent is gone. Both keep their default action, which is to terminate.
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
from collections.abc import Callable
from typing import Any

HEADER = 8


class Channel:
    """The socket to the parent. A message is a pickle after its length in eight bytes."""

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
        """The next message. If the parent is gone, the process ends here."""
        length = int.from_bytes(self._exactly(HEADER), "big")
        return pickle.loads(self._exactly(length))

    def write(self, message: bytes) -> None:
        """Send one message."""
        rest = memoryview(len(message).to_bytes(HEADER, "big") + message)
        while rest:
            rest = rest[os.write(self.fd, rest) :]

    def watch(self, on: bool) -> None:
        """Ask for SIGIO on socket events. The parent sends nothing while a call runs, so an event means it is gone."""
        fcntl.fcntl(self.fd, fcntl.F_SETFL, self._flags | os.O_ASYNC if on else self._flags)
        if on and select.select([self.fd], [], [], 0)[0]:
            os._exit(1)

    def _exactly(self, length: int) -> bytes:
        data = bytearray()
        while len(data) < length:
            part = os.read(self.fd, min(length - len(data), 1 << 20))
            if not part:
                os._exit(0)
            data += part
        return bytes(data)


def load(module: str, file: str | None, name: str) -> Callable[..., Any]:
    """A function by its module and name. A module that cannot be imported by name is loaded from its file."""
    if module not in sys.modules:
        try:
            importlib.import_module(module)
        except ModuleNotFoundError as error:
            if file is None or not f"{module}.".startswith(f"{error.name}."):
                raise  # the module exists; something that it imports does not
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
    found: Any = sys.modules[module]
    for part in name.split("."):
        found = getattr(found, part)
    return found  # type: ignore[no-any-return]


def make_package(name: str, folder: str) -> None:
    """Make a folder importable as a package, if it is not, so that its files can import each other."""
    if name and name not in sys.modules:
        package = sys.modules[name] = types.ModuleType(name)
        package.__path__ = [folder]


def answer(channel: Channel, function: Callable[..., Any], args: bytes, seconds: float) -> bytes:
    """Run one call within `seconds` of processor time, and return its result or its exception, pickled."""
    try:
        arguments = pickle.loads(args)
        channel.watch(True)
        signal.setitimer(signal.ITIMER_PROF, seconds)
        try:
            result = function(*arguments)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            channel.watch(False)
        return pickle.dumps((True, result), pickle.HIGHEST_PROTOCOL)
    except BaseException as error:
        return failed(error)


def failed(error: BaseException) -> bytes:
    """An exception, pickled. One that cannot be pickled and unpickled becomes a RuntimeError with its text."""
    try:
        if isinstance(error, Exception):
            error.add_note(f"In a child process:\n{''.join(traceback.format_tb(error.__traceback__))}")
            message = pickle.dumps((False, error), pickle.HIGHEST_PROTOCOL)
            pickle.loads(message)
            return message
    except Exception:
        pass
    return pickle.dumps((False, RuntimeError(f"{type(error).__name__}: {error!s:.1000}")))


def main() -> None:
    """Serve until the parent is gone. The first message holds `sys.path` and the memory limit; the others are calls."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    channel = Channel()
    sys.path[:], memory = channel.read()
    if memory is not None:
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        limit = memory if hard == resource.RLIM_INFINITY else min(memory, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))
    functions: dict[Any, Callable[..., Any]] = {}
    while True:
        target, args, seconds = channel.read()
        if target in functions:
            channel.write(answer(channel, functions[target], args, seconds))
            continue
        try:
            functions[target] = load(*target)
            channel.write(pickle.dumps((True, None)))
        except BaseException as error:
            channel.write(failed(error))


if __name__ == "__main__":
    main()
