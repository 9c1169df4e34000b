"""A connection to a Ray cluster: a running one, or a local one that ends with the connection.

Ray is an optional part (`ray`). On a busy machine a local cluster may fail to start through no fault of the user: an
agent registers too late, another cluster took a port, another user owns a folder. So a local cluster gets its own temp
folder, free ports and a longer timeout for its agents. A failed start is tried again, and the final error quotes the
reason from Ray's log.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from ludus.errors import UserError, missing_extra

#: The address of a cluster on this machine that starts and ends with the run.
LOCAL = "local"

#: Attempts to start a local cluster before the error is final.
START_ATTEMPTS = 3

#: Timeout for a connection to a cluster's address.
CONNECT_SECONDS = 20.0

_HINT = "Start one with: ray start --head. Or write --ray local"

#: Seconds between two messages while connecting.
SAY_EVERY = 10.0

#: Ray's settings for a local cluster, as environment variables. A busy machine needs the longer agent timeout.
START_SETTINGS = {
    "RAY_agent_register_timeout_ms": "180000",
    "RAY_enable_metrics_collection": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}

#: Bytes of shared memory for objects: we send small messages.
OBJECT_STORE_BYTES = 200 << 20

#: Ray's log files that may say why a node did not start, and a pattern for such lines.
_LOGS = ("raylet.err", "raylet.out", "gcs_server.err", "gcs_server.out", "dashboard_agent.log", "runtime_env_agent.log")
_TELLING = re.compile(r"\b[CEF]\b \d|check fail|error|fatal|failed|timed out|no space|denied", re.IGNORECASE)
#: Lines that only count failures, and lines of the levels INFO and DEBUG.
_NOT_TELLING = re.compile(r"\[state-dump\]|^[-\s]*[\w ]+: \d+$|\b[ID] \d+ \d+\]|\b(INFO|DEBUG)\b")

#: Lines of an error that name the actor: they are no cause.
_ACTOR_FIELDS = ("class_name", "actor_id", "pid", "namespace", "ip", "name")

Say = Callable[[str], None]


def import_ray() -> Any:
    """The package, or the error that says how to install it."""
    try:
        import ray
    except ImportError as error:
        raise missing_extra("ray", "ray") from error
    return ray


def is_connected() -> bool:
    """Whether this process is connected to a cluster already."""
    ray = sys.modules.get("ray")
    return ray is not None and bool(ray.is_initialized())


@contextlib.asynccontextmanager
async def connected(
    address: str, runtime: dict[str, Any], say: Say, *, cpus: float = 0, resources: dict[str, float] | None = None
) -> AsyncIterator[Any]:
    """The package `ray`, connected to a cluster. `runtime` is the runtime environment there; `say` gets progress.

    A local cluster has at least `cpus` and `resources`, and the GPUs of this machine. If this process is already
    connected, that connection is used with its own runtime environment, and left open.
    """
    ray = import_ray()
    if ray.is_initialized():
        yield ray
        return
    needed = {"num_cpus": max(os.cpu_count() or 1, math.ceil(cpus)), "resources": resources or {}}
    # Ray's processes end with the thread that started them, so one thread starts them and lives as long as the cluster.
    with ThreadPoolExecutor(1, "ludus-ray") as thread:
        folder = await _until_connected(thread, partial(_init, ray, runtime), address, needed, say)
        try:
            _restore_signal_handlers()
            yield ray
        finally:
            await _call(thread, ray.shutdown)
            if folder is not None:
                shutil.rmtree(folder, ignore_errors=True)


def _restore_signal_handlers() -> None:
    """Set Python's handlers again: Ray's C++ code replaced them by one that prints a stack and ends the process."""
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGINT):
            if (handler := signal.getsignal(number)) is not None:
                signal.signal(number, handler)
                signal.siginterrupt(number, False)


async def _until_connected(
    thread: ThreadPoolExecutor, init: Callable[..., None], address: str, needed: dict[str, Any], say: Say
) -> Path | None:
    if address != LOCAL:
        doing = f"connecting to the Ray cluster at {address}"
        await _check_listening(address)  # Ray itself waits for minutes, and says nothing
        try:
            await _with_messages(_call(thread, partial(init, address=address)), doing, say)
        except Exception as error:
            raise UserError(
                f"cannot connect to the Ray cluster at {address}: {f'{type(error).__name__}: {error_words(error)}'}",
                _HINT,
            ) from error
        return None
    reason = ""
    for attempt in range(1, START_ATTEMPTS + 1):
        folder = Path(tempfile.mkdtemp(prefix="lr-", dir="/tmp"))  # short: a socket's path has 107 bytes at most
        doing = f"starting Ray on this machine (attempt {attempt} of {START_ATTEMPTS})"
        try:
            await _with_messages(_call(thread, partial(_start, init, folder, needed)), doing, say)
            return folder
        except BaseException as error:
            reason = start_reason(folder) or f"{type(error).__name__}: {error_words(error)}"
            await _call(thread, import_ray().shutdown)
            shutil.rmtree(folder, ignore_errors=True)
            if not isinstance(error, Exception):
                raise
        if attempt < START_ATTEMPTS:
            say(f"Ray did not start: {reason}. Trying again")
    raise UserError(f"Ray did not start on this machine: {reason}", "Use --workers instead, or try again")


async def _check_listening(address: str) -> None:
    """Raise an error if nothing listens at `HOST:PORT` or `ray://HOST:PORT`. `auto` is left to Ray."""
    match = re.fullmatch(r"(?:ray://)?\[?([^/]+?)\]?:([0-9]{1,5})/?", address)
    if match is None:
        if address == "auto":
            return
        raise UserError(f"--ray {address:.80} is neither local, auto, HOST:PORT nor ray://HOST:PORT", _HINT)
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            _, writer = await asyncio.open_connection(match[1], int(match[2]))
            writer.close()
    except (OSError, OverflowError, TimeoutError) as error:
        reason = (
            f"{type(error).__name__}: {error_words(error)}" if str(error) else f"no answer within {CONNECT_SECONDS:g} s"
        )
        raise UserError(f"there is no Ray cluster at {address}: {reason}", _HINT) from error


def _start(init: Callable[..., None], folder: Path, needed: dict[str, Any]) -> None:
    before = {name: os.environ.get(name) for name in START_SETTINGS}
    os.environ.update({name: value for name, value in START_SETTINGS.items() if before[name] is None})
    try:
        store = {"object_store_memory": OBJECT_STORE_BYTES, "include_dashboard": False, "_temp_dir": str(folder)}
        init(address=LOCAL, **store, **needed)
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)


def _init(ray: Any, runtime: dict[str, Any], **options: Any) -> None:
    ray.init(runtime_env=runtime or None, logging_level=logging.ERROR, log_to_driver=True, namespace="ludus", **options)


async def _call(thread: ThreadPoolExecutor, function: Callable[[], Any]) -> Any:
    """Run a function on the thread. A cancel waits for its end: a half-started cluster could not be stopped."""
    running = asyncio.get_running_loop().run_in_executor(thread, function)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait({running})
        raise


async def _with_messages(work: Any, doing: str, say: Say) -> Any:
    """Await work, and say every few seconds what it is."""
    task = asyncio.ensure_future(work)
    waited = 0.0
    try:
        while not (await asyncio.wait({task}, timeout=SAY_EVERY))[0]:
            waited += SAY_EVERY
            say(f"{doing}: {waited:.0f} s so far")
    except asyncio.CancelledError:
        task.cancel()
        await asyncio.wait({task})
        raise
    return task.result()


def start_reason(folder: Path) -> str:
    """Why a node did not start, quoted from Ray's logs in its temp folder; empty if they do not say."""
    for name in _LOGS:
        for path in sorted(folder.glob(f"session_2*/logs/{name}")):
            with contextlib.suppress(OSError):
                lines = path.read_text(errors="replace").splitlines()[-200:]
                if told := [line for line in lines if _TELLING.search(line) and not _NOT_TELLING.search(line)]:
                    return f"{name}: {' '.join(told[-1].split())[:300]}"
    return ""


def error_words(error: BaseException) -> str:
    """What an error of Ray says, in one line. If it quotes a traceback or the output of pip: the first line, and the
    line that names the cause."""
    lines = [line for line in str(error).splitlines() if line.strip() and not line.strip().startswith(_ACTOR_FIELDS)]
    cause = _cause(lines)
    return " ".join(" ".join((lines[0], cause) if cause else lines).split())[:400] or type(error).__name__


def _cause(lines: list[str]) -> str:
    """The last error that pip printed or, if there is none, the exception at the end of the last traceback."""
    if printed := [line.strip() for line in lines if line.strip().startswith("ERROR: ")]:
        return printed[-1]
    starts = [at for at, line in enumerate(lines) if "Traceback (most recent call last)" in line]
    ends = [line for line in lines[starts[-1] + 1 :] if line.strip() and not line[0].isspace()] if starts else []
    return ends[0] if ends else ""
