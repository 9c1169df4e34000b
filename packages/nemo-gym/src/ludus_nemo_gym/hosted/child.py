"""The child process of a hosted server: it builds the server, listens on a Unix socket, and ends with its parent.

    python -m ludus_nemo_gym.hosted.child FOLDER REPORT

Its standard input holds what to host. It writes to the file descriptor REPORT once it listens, or what went wrong.

Most of its start is imports, which make no garbage: they are imported by functions, while garbage collection is off.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import ctypes
import faulthandler
import gc
import os
import shutil
import signal
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ludus_nemo_gym.hosted.offspring import kill_offspring

if TYPE_CHECKING:
    from ludus_nemo_gym.hosted.correlating import Correlating
    from ludus_nemo_gym.hosted.hosting import Hosting

#: How long a server may take to shut down after the end of its parent.
_STOP_SECONDS = 10.0
_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG


def main() -> None:
    """Serve until standard input ends."""
    gc.disable()
    from ludus.errors import UserError
    from ludus.runtime.running import run
    from ludus_nemo_gym.hosted.hosting import Hosting

    folder, report = Path(sys.argv[1]), int(sys.argv[2])
    os.set_inheritable(report, False)
    source = os.fdopen(os.dup(0), "rb", buffering=0)
    devnull = os.open(os.devnull, os.O_RDONLY)
    os.dup2(devnull, 0)  # code that reads standard input must not read what belongs to us
    faulthandler.register(signal.SIGUSR1, file=(folder / "stack").open("wb", buffering=0), all_threads=False)
    _wake_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which closes standard input
    hosting = Hosting.unpacked(_read(source, int.from_bytes(_read(source, 8), "big")))
    watch = _Watch(source, folder)
    _set_environment(hosting)
    try:
        app = hosting.build()  # without a running event loop, as in NeMo Gym: some servers start one of their own
    except UserError as error:
        _tell(report, {"error": str(error)})
        return
    gc.freeze()  # modules live as long as the process: no collection looks at them again, not even at exit
    gc.set_threshold(50000, 20, 100)
    gc.enable()
    run(_serve(app, folder / "socket", report, watch))


async def _serve(app: Correlating, path: Path, report: int, watch: _Watch) -> None:
    from ludus.http.listening import Listening
    from ludus_nemo_gym.hosted.cancelling import Cancelling

    stop = asyncio.Event()
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(path))
    listening.listen(2048)
    listening.setblocking(False)
    server = Listening(Cancelling(app), listening, channels=True)
    try:
        async with app.running():
            await server.begin()
            watch.stop_with(asyncio.get_running_loop(), stop)
            _tell(report, {})
            await stop.wait()
            await server.stop()
    except RuntimeError as error:
        _tell(report, {"error": str(error)})
        raise


class _Watch:
    """Waits for the end of standard input, then ends this process and all that it started.

    A server that listens may shut down first. One that is still being built has nothing to shut down.
    """

    def __init__(self, source: Any, folder: Path) -> None:
        self._source, self._folder, self._process = source, folder, os.getpid()
        self._stop: Callable[[], Any] | None = None
        atexit.register(self._clean_up)  # the first to be registered is the last to be called
        threading.Thread(target=self._wait, daemon=True).start()

    def stop_with(self, loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
        """Set `stop` first, from now on."""
        self._stop = lambda: loop.call_soon_threadsafe(stop.set)

    def _wait(self) -> None:
        with contextlib.suppress(OSError, ValueError):  # code that closes all files closes this one, too
            while self._source.read(4096):
                pass
        if self._stop is not None:
            with contextlib.suppress(RuntimeError):  # the event loop is closed
                self._stop()
            threading.Event().wait(_STOP_SECONDS)
        self._clean_up()
        os._exit(1)

    def _clean_up(self) -> None:
        """Do what the parent does after the end of this process: the parent may be gone."""
        if os.getpid() == self._process:  # not in a copy of this process
            shutil.rmtree(self._folder, ignore_errors=True)
            kill_offspring(self._folder)


def _wake_with_parent() -> None:
    """Let the end of the parent wake this process, so that it ends, too, if something has stopped it."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGCONT)


def _tell(report: int, content: dict[str, str]) -> None:
    import orjson

    try:
        os.write(report, orjson.dumps(content) + b"\n")
        os.close(report)
    except OSError:
        pass


def _read(source: Any, size: int) -> bytes:
    content = b""
    while len(content) < size:
        piece = source.read(size - len(content))
        if not piece:
            raise SystemExit(1)
        content += piece
    return content


def _set_environment(hosting: Hosting) -> None:
    """What the process of a server has in NeMo Gym: its folder, its search path, and its configuration."""
    from omegaconf import OmegaConf

    from ludus_nemo_gym.search_paths import ROOTS

    os.chdir(hosting.source.folder)
    os.environ["NEMO_GYM_CONFIG_DICT"] = OmegaConf.to_yaml(OmegaConf.create(hosting.tree))
    os.environ["NEMO_GYM_CONFIG_PATH"] = hosting.instance
    if hosting.source.root is not None:
        os.environ[ROOTS] = str(hosting.source.root)


if __name__ == "__main__":
    main()
