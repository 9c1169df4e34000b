"""`ludus status RUN` and `ludus status URL` of a model server: what each endpoint does, and what limits a run."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ludus.model import ServerLoad

#: Seconds between the two reports of an endpoint that rates are made of.
APART_SECONDS = 1.0


def run_status(path: Path) -> dict[str, Any]:
    """The state of a run that is being collected, with the reports of its endpoints."""
    from ludus.collection.run_status import server_seconds, what_limits
    from ludus.errors import UserError
    from ludus.store.files import Files, read_json_object

    files = Files.of(path)
    status = read_json_object(files.status) if path.exists() else {}
    if not status:
        if not files.rollouts.exists():
            raise UserError(f"{path} is neither a run nor a URL", "Example: ludus status runs/first")
        raise UserError(f"no collection writes {path} now", f"See its results with: ludus show {path}")
    endpoints = status["endpoints"]
    before, now = asyncio.run(_loads([endpoint["url"] for endpoint in endpoints]))
    rows = [{**endpoint, **_figures(*pair)} for endpoint, *pair in zip(endpoints, before, now, strict=True)]
    cost = {"server_seconds_per_1000_tokens": server_seconds(status)}
    return {**status, **cost, "endpoints": rows, "limits": what_limits(status, before, now)}


def server_status(url: str) -> dict[str, Any] | None:
    """The report of a model server; None if the URL is none that reports."""
    before, now = asyncio.run(_loads([url]))
    return {"endpoints": [{"url": url, **_figures(before[0], now[0])}]} if now[0] is not None else None


async def _loads(urls: list[str]) -> tuple[list[ServerLoad | None], list[ServerLoad | None]]:
    """Two reports of each server. No key is sent: servers need none for it."""
    from ludus.http.retries import Retries
    from ludus.models.transport import Transport

    if not urls:
        return [], []
    transport = Transport("a model server", urls, {}, Retries())
    try:
        before = await transport.server_loads()
        if any(before):
            await asyncio.sleep(APART_SECONDS)
            return before, await transport.server_loads()
        return before, before
    finally:
        await transport.stop()


def _figures(before: ServerLoad | None, now: ServerLoad | None) -> dict[str, Any]:
    """The report of a server, and its tokens and preemptions in the last second."""
    if now is None:
        return {"reports": False}
    hits = now.hits / now.queries if now.hits is not None and now.queries else None
    rates = {
        f"{name}_per_second": max(0.0, new - old) / APART_SECONDS
        for name in ("preempted", "generated")
        if (new := getattr(now, name)) is not None and (old := getattr(before, name, None)) is not None
    }
    return {"reports": True, **asdict(now), "hit_rate": hits, **rates}


def show(console: Any, status: dict[str, Any]) -> None:
    """Print the state as a table, and what limits the run as a sentence."""
    from ludus.cli.screen import emit, plain_table, print_unbroken, text

    if "total" in status:
        stages = ", ".join(f"{stage} {count}" for stage, count in status["stages"].items()) or "none"
        limit = f"{status['limit']}{' (auto)' if status['adaptive'] else ''}"
        emit(console, text(f"{status['done']:,} of {status['total']:,} rollouts; in flight: {stages}; limit {limit}"))
    table = plain_table(
        "endpoint", "running", "waiting", "KV cache", "preempted", "prefix hits", "tokens/s", "ours", "moved"
    )
    for endpoint in status["endpoints"]:
        whole = (_whole(endpoint.get(name)) for name in ("running", "waiting"))
        cells = [endpoint["url"], *whole, _share(endpoint.get("cache")), _whole(endpoint.get("preempted"))]
        cells += [_share(endpoint.get("hit_rate")), _whole(endpoint.get("generated_per_second"))]
        cells += [_whole(endpoint.get("outstanding")), _whole(endpoint.get("moved"))]
        table.add_row(*map(text, cells))
    if status["endpoints"]:
        print_unbroken(console, table)
    if (cost := status.get("server_seconds_per_1000_tokens")) is not None:
        emit(console, text(f"1,000 tokens of rollouts with a verdict cost {cost:,.2f} s of a server"))
    if "limits" in status:
        emit(console, text(f"limits now: {status['limits']}"))


def _whole(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.0%}"
