"""`ludus status`: the servers of a launch and their health."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import typer


def status(
    head: Annotated[str, typer.Argument(metavar="URL", help="The head's address.")] = "http://127.0.0.1:11000",
    token_env: Annotated[str, typer.Option(help="The variable with the servers' token.")] = "LUDUS_TOKEN",
    json_: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the running servers with their health.

    Example: ludus status --json
    """
    from ludus.cli.screen import safe_json, stdout_console

    health = asyncio.run(_ask(head.rstrip("/"), token_env))
    if json_:
        print(safe_json(health))
    else:
        _show(stdout_console(), health)
    if any(server["status"] != "ok" for server in health["servers"]):
        raise typer.Exit(1)


async def _ask(head: str, token_env: str) -> dict[str, Any]:
    from ludus.errors import Failure, UserError
    from ludus.remote.http import connect

    async with connect(head, token_env) as client:
        try:
            health = (await client.get("/health")).json()
            servers = client.checked(await client.get("/server_instances"))
        except Failure as error:
            hint = f"Set {token_env}" if error.kind == "http_401" else "Start servers with: ludus serve ENV"
            raise UserError(error.cause, hint) from error
    answers = await asyncio.gather(*(_health(server, token_env) for server in servers))
    return {"head": head, **health, "servers": answers}


async def _health(server: dict[str, Any], token_env: str) -> dict[str, Any]:
    from ludus.errors import Failure
    from ludus.remote.http import connect

    try:
        async with asyncio.timeout(5), connect(server["url"], token_env) as client:
            reply = await client.get("/health")
            health = (reply if reply.status != 404 else await client.get("/")).json()  # NeMo Gym's have only the latter
    except (Failure, TimeoutError) as error:
        health = {"status": "unreachable", "cause": str(error) or "no answer within 5 s"}
    return {**server, **health, "name": server.get("process_name") or server["name"]}


def _show(console: Any, health: dict[str, Any]) -> None:
    from rich.table import Table

    from ludus.cli.screen import emit, print_unbroken, text
    from ludus.cli.serve import KINDS

    table = Table(box=None, pad_edge=False)
    for column in ("server", "kind", "address", "status", "sessions"):
        table.add_column(column, overflow="fold")
    for server in health["servers"]:
        sessions = server.get("sessions_open")
        in_worker = f" in worker {server['worker']}" if "worker" in server else ""
        shown = "" if sessions is None else f"{sessions:g}{in_worker}"
        cells = (server["name"], KINDS[server["server_type"]], server["url"], server["status"], shown)
        table.add_row(*map(text, cells))
    print_unbroken(console, table)
    for worker in health.get("workers", []):
        state = "ready" if worker["ready"] else f"waiting for {worker['waiting_for']}"
        pid = f" (pid {worker['pid']})" if "pid" in worker else ""
        emit(console, text(f"worker {worker['worker']}{pid}: {state}, restarted {worker['restarts']} times"))
