"""The tools that an application's routes are: their names, descriptions and schemas."""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Union, get_origin

from pydantic import TypeAdapter

from nemo_gym._mcp_names import RESERVED_MCP_TOOL_NAMES
from nemo_gym._responses import field_of

if TYPE_CHECKING:
    from fastapi import FastAPI
    from fastapi.routing import APIRoute

_NAME = re.compile(r"[A-Za-z0-9_-]+")
_CATCH_ALL = re.compile(r"/\{[^/{}]+\}")


@dataclass(frozen=True)
class MCPTool:
    """A tool over MCP. A call is a POST request to `/NAME`."""

    name: str
    description: str = ""
    input_schema: dict[str, Any] = field(default_factory=lambda: {"type": "object"})

    def as_json(self) -> dict[str, Any]:
        """The tool as MCP describes it."""
        return {"name": self.name, "description": self.description, "inputSchema": self.input_schema}


def harvest(app: FastAPI) -> tuple[list[MCPTool], MCPTool | None]:
    """The tools of the POST routes without parameters, and the route for every other name, if there is one."""
    tools: list[MCPTool] = []
    catch_alls: list[MCPTool] = []
    for route in _post_routes(app):
        name = route.path.lstrip("/")
        if _CATCH_ALL.fullmatch(route.path):
            catch_alls.append(MCPTool(name, _description(route)))
        elif "{" not in route.path and name not in RESERVED_MCP_TOOL_NAMES:
            tools.append(MCPTool(name, _description(route), _schema(route)))
    if len(catch_alls) > 1:
        paths = ", ".join(f"/{tool.name}" for tool in catch_alls)
        raise ValueError(f"tools over MCP need at most one catch-all route, and there are several: {paths}")
    return tools, catch_alls[0] if catch_alls else None


def as_tools(entries: Any) -> dict[str, MCPTool]:
    """The tools that `mcp_tools` of a server returned, by name. An entry may be a mapping or any object with a name."""
    values: Iterable[Any] = entries.values() if isinstance(entries, Mapping) else entries
    tools: dict[str, MCPTool] = {}
    for entry in values:
        tool = _as_tool(entry)
        if tool.name in RESERVED_MCP_TOOL_NAMES:
            raise ValueError(f"{tool.name!r} is a route of every resources server: rename the tool")
        if _NAME.fullmatch(tool.name) is None:
            raise ValueError(f"{tool.name!r} is not a valid name of an MCP tool: use letters, digits, '_' and '-'")
        if tool.name in tools:
            raise ValueError(f"two MCP tools have the name {tool.name!r}: rename one")
        tools[tool.name] = tool
    return tools


def _post_routes(app: FastAPI) -> list[APIRoute]:
    from fastapi.routing import APIRoute

    return [route for route in app.routes if isinstance(route, APIRoute) and "POST" in (route.methods or ())]


def _description(route: APIRoute) -> str:
    return inspect.cleandoc(route.endpoint.__doc__ or "") or route.description


def _schema(route: APIRoute) -> dict[str, Any]:
    """The schema of a route's body. `ValueError` for a handler whose arguments are not one body."""
    dependant = route.dependant
    if dependant.query_params or dependant.dependencies:
        raise ValueError(f"{route.path} takes query parameters or dependencies: a tool over MCP takes one body")
    if not dependant.body_params:
        return {"type": "object", "properties": {}}
    if len(dependant.body_params) > 1:
        raise ValueError(f"{route.path} takes several bodies: a tool over MCP takes one")
    kind: Any = dependant.body_params[0].field_info.annotation
    if get_origin(kind) in (Union, types.UnionType):
        raise ValueError(f"{route.path} takes a union as its body: a tool over MCP takes one class")
    schema = TypeAdapter(kind).json_schema()
    if schema.get("type", "object") != "object":
        raise ValueError(f"{route.path} takes a body that is not an object: a tool over MCP takes an object")
    return {"type": "object", **schema}


def _as_tool(entry: Any) -> MCPTool:
    if isinstance(entry, MCPTool):
        return entry
    schemas = [field_of(entry, key) for key in ("input_schema", "inputSchema", "parameters")]
    schema = next((schema for schema in schemas if isinstance(schema, Mapping)), {"type": "object"})
    return MCPTool(str(field_of(entry, "name")), str(field_of(entry, "description") or ""), dict(schema))
