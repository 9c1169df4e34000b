"""The tools of one environment over MCP on stdin and stdout, in a session for one row of its dataset."""

from __future__ import annotations

import asyncio
from typing import Any

from ludus.data.rows import Rows
from ludus.errors import UserError, missing_extra
from ludus.resources import Resources
from ludus.serve.mcp import tool_server
from ludus.serve.plan import Plan
from ludus.serve.sessions import Session, Sessions
from ludus.serve.site import environment_of
from ludus.task import Task


def serve_stdio(plan: Plan, row: int = 1) -> None:
    """Offer the tools of one environment over stdin and stdout, in a session for row number `row`, counted from 1."""
    try:
        import mcp.server.stdio  # noqa: F401
    except ImportError as error:
        raise missing_extra("MCP", "mcp") from error
    if len({server.environment for server in plan.servers if server.environment}) != 1:
        raise UserError("--stdio serves exactly one environment", "Name one: ludus serve ENV --mcp --stdio")
    asyncio.run(_stdio(plan, row))


async def _stdio(plan: Plan, row: int) -> None:
    from mcp.server.stdio import stdio_server

    environment = environment_of(plan.servers[0], plan)
    task: Task | None = None
    if row > 1 or environment.resources.open is not Resources.open:
        _, task = Rows(environment.rows(None), environment.task, fill=environment.with_prompt).nth(row)
    async with environment.share() as shared:
        sessions = Sessions(environment, shared)
        session = await sessions.open(task)

        async def find(request: Any) -> Session:
            return session

        server = tool_server(sessions, find)
        try:
            async with stdio_server() as (incoming, outgoing):
                await server.run(incoming, outgoing, server.create_initialization_options())
        finally:
            await sessions.stop()
