"""What the worker does: make a task, answer with its rows, or play its samples until the socket ends."""

from __future__ import annotations

import asyncio
import os
import tempfile
import traceback
from pathlib import Path
from typing import Any

from .channel import Message, WorkerChannel

#: Rows that are sent at once.
_BATCH = 200


def main(descriptor: int) -> None:
    """Serve the socket with a file descriptor until it ends."""
    os.dup2(2, 1)  # what a task prints is a line of our log
    asyncio.run(_main(descriptor))
    os._exit(0)  # threads of other people's clients must not keep the process


async def _main(descriptor: int) -> None:
    channel = await WorkerChannel.over(descriptor)
    setup = await channel.receive()
    if setup is None:
        return
    try:
        from .evaluating import RunningEval

        evaluation = RunningEval(channel, setup)
        task = evaluation.load()
    except BaseException as error:
        channel.note(op="problem", **_problem(error, setup))
        await channel.close()
        return
    if setup["mode"] == "rows":
        await _send_rows(channel, task)
    else:
        with tempfile.TemporaryDirectory(prefix=f"ludus-inspect-{os.getpid()}-") as folder:
            await _play(channel, evaluation, task, Path(folder))


async def _send_rows(channel: WorkerChannel, task: Any) -> None:
    from .samples import rows_of

    batch: list[dict[str, Any]] = []
    for row in rows_of(task):
        batch.append(row)
        if len(batch) == _BATCH:
            channel.note(op="rows", rows=batch)
            await channel.flush()
            batch = []
    channel.note(op="rows", rows=batch, last=True)
    await channel.close()


async def _play(channel: WorkerChannel, evaluation: Any, task: Any, folder: Path) -> None:
    async def nothing(message: Message) -> None:
        raise ValueError(f"unknown request {message.get('op')}")

    reading = asyncio.create_task(channel.serve(nothing, evaluation.hear))
    playing = asyncio.create_task(evaluation.run(task, folder))
    done, _ = await asyncio.wait({reading, playing}, return_when=asyncio.FIRST_COMPLETED)
    if playing in done:
        error = playing.exception()
        text = _words(error) if error is not None else playing.result() or "it ended by itself"
        channel.note(op="ended", text=text)
        await channel.close()
    else:  # the other process has closed the socket, or is gone
        playing.cancel()
        await asyncio.wait({playing})  # it writes its log once more, into the folder that is then removed


def _problem(error: BaseException, setup: Message) -> dict[str, str]:
    """Why the task could not be made, and where."""
    frames = traceback.extract_tb(error.__traceback__)
    folder = setup.get("folder") or ""
    own = [frame for frame in frames if folder and frame.filename.startswith(folder)]
    place = f"{own[-1].filename}:{own[-1].lineno}" if own else ""
    if isinstance(error, SyntaxError) and error.filename:
        place = f"{error.filename}:{error.lineno}"
    missing = error.name or "" if isinstance(error, ModuleNotFoundError) else ""
    kinds = [kind.__name__ for kind in type(error).__mro__]
    return {"text": _words(error), "place": place, "missing": missing, "kind": ",".join(kinds)}


def _words(error: BaseException) -> str:
    text = " ".join(str(getattr(error, "message", None) or error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
