"""`ludus status`: the load of a run's endpoints or of a model server; the servers of a launch and their health."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from ludus.cli.commands import Argument, Exit, Option


def status(
    target: Annotated[
        str, Argument(metavar="RUN|URL", help="A run, a model server, or the head of ludus serve.")
    ] = "http://127.0.0.1:11000",
    token_env: Annotated[str, Option(help="The variable with the servers' token.")] = "LUDUS_TOKEN",
    json_: Annotated[bool, Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show what limits a run and what its endpoints do.

    Without RUN, show the servers of ludus serve.

    A run that is being collected: ludus status runs/first

    A server of vLLM, SGLang or llama.cpp: ludus status http://127.0.0.1:8000

    The servers of ludus serve: ludus status --json
    """
    import asyncio

    from ludus.cli.endpoint_status import run_status, server_status, show
    from ludus.cli.screen import safe_json, stdout_console

    is_url = target.startswith(("http://", "https://"))
    if (load := server_status(target) if is_url else run_status(Path(target))) is not None:
        if json_:
            print(safe_json(load))
        else:
            show(stdout_console(), load)
        return
    health = asyncio.run(_ask(target.rstrip("/"), token_env))
    if json_:
        print(safe_json(health))
    else:
        _show(stdout_console(), health)
    if any(server["status"] != "ok" for server in health["servers"]):
        raise Exit(1)


async def _ask(head: str, token_env: str) -> dict[str, Any]:
    import asyncio

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
    import asyncio

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
    from ludus.cli.screen import emit, plain_table, print_unbroken, text
    from ludus.cli.serve import KINDS

    table = plain_table("server", "kind", "address", "status", "sessions")
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
