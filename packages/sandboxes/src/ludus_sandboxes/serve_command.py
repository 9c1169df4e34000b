"""`ludus serve sandbox`: run the sandboxes of this machine as an HTTP server until Ctrl-C."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import Any

#: The least memory of a sandbox, with its interpreter and files.
_SANDBOX_BYTES = 32 << 20


def serve_sandbox(host: str, port: int, most: int, token_env: str, settings: dict[str, Any], as_json: bool) -> None:
    """Check everything, then serve."""
    from ludus.errors import UserError
    from ludus.http.guard import Guard, required_token
    from ludus.http.listening import bind
    from ludus.runtime.settings import checked
    from ludus.sandbox.resources import SandboxSettings
    from ludus.serve.worker import run

    for key in settings:
        if not key.startswith("sandbox."):
            known = "sandbox.provider, sandbox.image (the only image that it offers) and sandbox.warm"
            raise UserError(f"unknown setting {key}", f"A sandbox server takes {known}")
    checked_settings = checked(
        SandboxSettings, {key.partition(".")[2]: value for key, value in settings.items()}, "sandbox"
    )
    guard = Guard(token=required_token({host}, token_env), body_bytes=1 << 28)
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    most = max(min(most, memory // _SANDBOX_BYTES), 1)
    run(_serve(bind("the sandbox server", host, port), guard, checked_settings, most, as_json))


async def _serve(listening: Any, guard: Any, settings: Any, most: int, as_json: bool) -> None:
    from ludus.cli.screen import safe_json
    from ludus.http.listening import Listening, address
    from ludus.sandbox.choice import open_provider
    from ludus_sandboxes.server import SandboxApp

    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    images = [settings.image] if settings.image else []
    opened = await open_provider(settings.provider, image=bool(images), warm=settings.warm)
    app = SandboxApp(opened, guard=guard, most=most, images=images)
    server = Listening(app, listening)
    await app.start()
    await server.begin()
    host, port = listening.getsockname()[:2]
    url, provider = address(host, port), app.provider.name
    if as_json:
        print(safe_json({"ready": True, "url": url, "provider": provider, "most": most}, indent=None), flush=True)
    else:
        print(f"sandboxes by {provider}, at most {most:,} at once: {url}. Ctrl-C stops the server.", flush=True)
    await stop.wait()
    await app.stop()  # first, so that no request waits for a program
    await server.stop()
    print("stopped: all sandboxes are closed", file=sys.stderr)
