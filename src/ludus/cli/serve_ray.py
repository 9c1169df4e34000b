"""`ludus serve --ray`: environments as a Ray Serve deployment until Ctrl-C."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ludus.serve.plan import Plan
    from ludus.serve.ray_serving import RayServing


def serve_ray(plan: Plan, address: str, port: int, *, as_json: bool) -> None:
    """Serve a plan on a Ray cluster until Ctrl-C or SIGTERM."""
    asyncio.run(_until_stopped(plan, address, port, as_json))


async def _until_stopped(plan: Plan, address: str, port: int, as_json: bool) -> None:
    from ludus.cli.screen import say
    from ludus.serve.ray_serving import RayServing

    serving = RayServing(plan, address, port, say=say)
    running = asyncio.current_task()
    assert running is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, running.cancel)
    try:
        async with serving:
            _show(serving, as_json)
            await asyncio.Event().wait()
    except asyncio.CancelledError:
        say("stopped: all sessions are closed")


def _show(serving: RayServing, as_json: bool) -> None:
    from ludus.cli.screen import safe_json

    plan = serving.plan
    rows = [{"name": server.name, "kind": server.kind, "url": serving.url_of(server)} for server in plan.servers]
    if as_json:
        print(safe_json({"ready": True, "workers": plan.workers, "servers": rows}, indent=None), flush=True)
        return
    for row in rows:
        print(f"{row['name']:<32} {row['url']}")
    print(f"ready with {plan.workers} replica{'s' * (plan.workers > 1)}. Ctrl-C stops all servers.", flush=True)
