"""Servers that run while a command works, on a thread of its process."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from ludus.serve.serving import Serving
from ludus_nemo_gym.launch import Launch
from ludus_nemo_gym.starting import plan_of


@contextmanager
def served(launch: Launch) -> Iterator[str]:
    """Run the servers of a launch until the block ends. Gives the URL of their head, on any free port."""
    launch.head_port = 0
    plan = plan_of(launch)
    os.environ.update(launch.secrets)
    serving, loop = Serving(plan), asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="ludus-servers", daemon=True)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(serving.start(), loop).result()
        yield serving.head_url
    finally:
        asyncio.run_coroutine_threadsafe(serving.stop(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
