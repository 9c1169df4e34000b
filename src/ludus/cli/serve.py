"""`ludus serve`: run environments as HTTP servers until Ctrl-C."""

from __future__ import annotations

import contextlib
import signal
from typing import TYPE_CHECKING, Annotated, Any

from ludus.cli.commands import Argument, Option

if TYPE_CHECKING:
    from ludus.serve.plan import Plan
    from ludus.serve.serving import Serving


def serve(
    environments: Annotated[
        list[str], Argument(metavar="ENV...", help="Names or folders of environments; or the word sandbox.")
    ],
    model: Annotated[str, Option("--model", "-m", help="The agents' model; as in ludus collect.")] = "local",
    host: Annotated[str, Option(help="Address to listen on; needs a token unless loopback.")] = "127.0.0.1",
    head_port: Annotated[int, Option(min=0, max=65535, help="The head's port; 0 takes a free one.")] = 11000,
    port: Annotated[
        int, Option(min=0, max=65535, help="The first server's port, the others count up; 0 takes free ones.")
    ] = 0,
    workers: Annotated[int, Option("--workers", "-w", min=1, help="Processes behind each address.")] = 1,
    ray: Annotated[
        str | None, Option(metavar="ADDRESS|local", help="Serve on a Ray cluster, --workers replicas below one URL.")
    ] = None,
    resources_only: Annotated[bool, Option("--resources-only", help="Serve no model and no agents.")] = False,
    resources: Annotated[str | None, Option(metavar="URL", help="Use resources on a server.")] = None,
    mcp: Annotated[bool, Option("--mcp", help="Offer each session's tools over MCP too, at /mcp.")] = False,
    stdio: Annotated[bool, Option("--stdio", help="With --mcp: one session over stdin and stdout.")] = False,
    row: Annotated[int, Option(min=1, help="With --stdio: the row to open, counted from 1.")] = 1,
    max_sessions: Annotated[int, Option(min=1, help="Open sessions per environment.")] = 16384,
    idle: Annotated[float, Option(min=1, help="Seconds until an unused session is closed.")] = 600.0,
    allow_policy: Annotated[
        list[str] | None, Option(metavar="URL", help="Let /run requests name a policy below this URL.")
    ] = None,
    tokens: Annotated[bool, Option("--tokens", help="Put token ids on the items of every answer.")] = False,
    token_env: Annotated[str, Option(help="The variable with the token that clients must send.")] = "LUDUS_TOKEN",
    set_: Annotated[list[str] | None, Option("--set", metavar="PART.KEY=VALUE", help="As in ludus collect.")] = None,
    json_: Annotated[bool, Option("--json", help="Print the addresses as one line of JSON.")] = False,
) -> None:
    """Serve environments over HTTP.

    Resources, agents and the model get an address each. The head lists the addresses.

    Example: ludus serve mcqa example_multi_step --model local

    On a Ray cluster: ludus serve mcqa --model URL#NAME --ray 10.0.0.1:6379 --workers 8 --host 0.0.0.0 --port 8000

    `ludus serve sandbox --port 9000` serves the sandboxes of this machine instead, for the provider `remote`.
    """
    from ludus.errors import UserError
    from ludus.runtime.settings import parse_assignments
    from ludus.serve.plan import Plan

    if environments == ["sandbox"]:
        from ludus.runtime.installed import packaged

        serve_sandbox = packaged("ludus.sandbox_servers", "serve", "ludus serve sandbox", "sandboxes")
        serve_sandbox(host, port, max_sessions, token_env, parse_assignments(set_ or []), json_)
        return
    if "sandbox" in environments:
        others = " ".join(name for name in environments if name != "sandbox")
        hint = f"Start two servers: ludus serve sandbox --port PORT, and ludus serve {others:.200}"
        raise UserError("ludus serve sandbox serves sandboxes and no environment", hint)
    plan = Plan.of(
        environments,
        model,
        settings=parse_assignments(set_ or []),
        resources_only=resources_only,
        resources=resources,
        host=host,
        head_port=head_port,
        workers=workers,
        token_env=token_env,
        max_sessions=max_sessions,
        idle_seconds=idle,
        allow_policy=allow_policy or [],
        tokens=tokens,
        mcp=mcp,
    )
    if stdio:
        from ludus.serve.stdio import serve_stdio

        serve_stdio(plan, row)
        return
    if ray is not None:
        from ludus.cli.serve_ray import serve_ray

        serve_ray(plan, ray, port, as_json=json_)
        return
    for number, server in enumerate(plan.servers):
        server.port = port + number if port else 0
    run_plan(plan, as_json=json_)


def run_plan(plan: Plan, *, as_json: bool = False) -> None:
    """Serve a plan until Ctrl-C or SIGTERM."""
    from ludus.cli.screen import say
    from ludus.serve.serving import Serving
    from ludus.serve.worker import run

    serving = Serving(plan, say=say)
    serving.bind()
    run(_until_stopped(serving, as_json))


async def _until_stopped(serving: Serving, as_json: bool) -> None:
    import asyncio

    from ludus.cli.screen import say

    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    starting = asyncio.create_task(serving.start())
    stopping = asyncio.create_task(stop.wait())
    reporting = asyncio.create_task(_report_waiting(serving))
    try:
        await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        reporting.cancel()
        if not stop.is_set():
            await starting
            show_addresses(serving, as_json)
            failing = asyncio.create_task(serving.until_failed())
            await asyncio.wait({failing, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if failing.done():
                failing.result()
            failing.cancel()
    finally:
        reporting.cancel()
        starting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await starting
        await serving.stop()
    say("stopped: all sessions are closed")


async def _report_waiting(serving: Serving) -> None:
    """Print what the start is waiting for, once it takes more than a second."""
    import asyncio

    from ludus.cli.screen import say

    reported = ""
    while True:
        await asyncio.sleep(1.0)
        progress = serving.progress()
        waiting = progress.get("waiting_for") or ", ".join(
            f"worker {worker['worker']}: {worker['waiting_for']}"
            for worker in progress["workers"]
            if not worker["ready"]
        )
        if waiting and waiting != reported:
            say(f"waiting for {waiting}")
            reported = waiting


def show_addresses(serving: Serving, as_json: bool) -> None:
    """Print the servers and their URLs."""
    from ludus.cli.screen import plain_table, print_unbroken, safe_json, stdout_console

    plan = serving.plan
    rows: list[dict[str, Any]] = [
        {"name": server.name, "kind": server.kind, "url": server.url} for server in plan.servers
    ]
    if plan.head_port is not None:
        rows.insert(0, {"name": "head", "kind": "head", "url": serving.head_url})
    if as_json:
        print(safe_json({"ready": True, "workers": plan.workers, "servers": rows}, indent=None), flush=True)
        return
    console = stdout_console()
    table = plain_table("server", "kind", "address")
    for row in rows:
        table.add_row(row["name"], KINDS[row["kind"]], row["url"])
    print_unbroken(console, table)
    console.print(f"ready with {plan.workers} worker{'s' * (plan.workers > 1)}. Ctrl-C stops all servers.")


KINDS = {
    "head": "head",
    "resources_servers": "resources",
    "responses_api_agents": "agent",
    "responses_api_models": "model",
}
