"""The model fills in a form from a message. The form is an MCP server: its tools come from there and not from here.

The server runs in this process, one for each rollout. A field that the message does not mention must stay empty.
"""

from __future__ import annotations

import re

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

from ludus import Response, Verdict
from ludus.graders.answers import normalised
from ludus.integrations.mcp import McpResources
from ludus.integrations.mcp_servers import InProcessServer, McpServer

PATTERNS = dict.fromkeys(("name", "requests"), r"[^\n]+") | dict.fromkeys(("nights", "guests"), r"[1-9]\d?")
PATTERNS |= {"email": r"\S+@\S+", "arrival": r"\d{4}-\d\d-\d\d"}


class FormFilling(McpResources):
    """The form of one rollout, and the server that the model fills it in with."""

    class Task(McpResources.Task):
        expected: dict[str, str]

    async def servers(self, task: Task) -> dict[str, McpServer]:
        self.form: dict[str, str] = {}
        self.submitted = False
        return {"": InProcessServer(self.server(), "the booking form")}

    def server(self) -> MCPServer:
        """An ordinary MCP server: its tools could as well run in another program."""
        server = MCPServer("booking form", log_level="CRITICAL")

        @server.tool()
        def fill_in(field: str, value: str) -> str:
            """Fill in one field: name, email, arrival (2026-12-31), nights, guests or requests."""
            if self.submitted:
                raise ToolError("the form is submitted already")  # the model reads the text of a ToolError
            if field not in PATTERNS or (value and not re.fullmatch(PATTERNS[field], value)):
                raise ToolError(f"{field} cannot be {value!r}")
            self.form[field] = value
            return f"{field}: {value or 'empty'}"

        @server.tool()
        def submit() -> dict[str, str]:
            """Submit the form. It cannot be changed afterwards."""
            self.submitted = True
            return self.form

        return server

    async def verify(self, task: Task, response: Response) -> Verdict:
        filled = {field: normalised(value) for field, value in self.form.items() if value}
        right = filled == {field: normalised(value) for field, value in task.expected.items()}
        return Verdict(float(right and self.submitted), right=right, submitted=self.submitted)
