"""The OpenAPI documents of servers: routes, the schema of rows, and tools with their real schemas."""

from __future__ import annotations

from typing import Any

from pydantic.errors import PydanticInvalidForJsonSchema

from ludus.environment import Environment
from ludus.game import Game
from ludus.remote.http import SESSION
from ludus.store.receipts import verifier_digest

Schema = dict[str, Any]

_OBJECT: Schema = {"type": "object"}
_OBJECTS: Schema = {"type": "array", "items": _OBJECT}
_REQUEST: Schema = {
    "type": "object",
    "properties": {
        "input": {"anyOf": [{"type": "string"}, _OBJECTS]},
        "tools": {"anyOf": [_OBJECTS, {"type": "null"}]},
    },
    "required": ["input"],
}
_RESPONSE: Schema = {"type": "object", "properties": {"output": _OBJECTS}, "required": ["output"]}
_VERIFIED: Schema = {"type": "object", "properties": {"verify_responses": _OBJECTS}, "required": ["verify_responses"]}
_CHAT: Schema = {"type": "object", "properties": {"messages": _OBJECTS}, "required": ["messages"]}
_REFUSALS = {
    "400": {"description": "The body is not JSON, or no session is open"},
    "401": {"description": "The token is missing"},
    "403": {"description": "A policy that the operator does not allow, or a web page of another origin"},
    "404": {"description": "There is no such tool in this session"},
    "408": {"description": "The body came too slowly"},
    "409": {"description": "It is not the player's turn: the game has not begun, or is over"},
    "410": {"description": "The session is over"},
    "413": {"description": "The body is too large"},
    "415": {"description": "The body's type is not application/json"},
    "421": {"description": "A server without a token answers only to localhost"},
    "422": {"description": "The body does not fit"},
    "429": {"description": "Too many sessions are open"},
    "500": {"description": "The environment failed: stage, kind and cause"},
    "502": {"description": "A service that the environment needs did not answer"},
    "503": {"description": "The judge failed, or the server is full"},
    "504": {"description": "A deadline passed"},
}
_STREAMED = ("application/json", "text/event-stream")


def describe_resources(environment: Environment, tools: list[Schema]) -> Schema:
    """The document of one environment's resources server."""
    row, schemas = _row(environment)
    judged = {**row, "properties": {**row["properties"], "response": _RESPONSE}}
    judged["required"] = [*row["required"], "response"]
    paths = {
        "/seed_session": _post("Open a session for a row", row),
        "/verify": _post("Judge a response: the request comes back with its reward", judged),
        "/close_session": _post("Close a session", _OBJECT),
        "/aggregate_metrics": _post("Statistics over verified rollouts", _VERIFIED),
        "/reverify_mode": _get("Whether a stored rollout can be judged again"),
        "/health": _get("How the server is doing"),
    }
    if issubclass(environment.resources, Game):
        paths["/reset"] = _post("Begin a game", row)
        paths["/step"] = _post("Take a turn", judged)
    for tool in tools:
        if tool.get("type") == "function":
            summary = str(tool.get("description") or tool["name"])
            operation = _post(summary, tool.get("parameters") or _OBJECT, "application/json", "text/plain")
            paths[f"/{tool['name']}"] = operation
            operation["post"]["x-ludus-tool"] = True
    session = {"session": {"type": "apiKey", "in": "header", "name": SESSION}}
    return {**_document(environment, paths), "components": {"securitySchemes": session, "schemas": schemas}}


def describe_agent(environment: Environment) -> Schema:
    """The document of one environment's agent server."""
    row, schemas = _row(environment)
    paths = {
        "/run": _post("Play a rollout: its record comes back, with its reward", row),
        "/v1/responses": _post("Play without a verdict", _REQUEST, *_STREAMED),
        "/v1/chat/completions": _post("The same in Chat Completions", _CHAT, *_STREAMED),
        "/v1/messages": _post("The same in Anthropic's Messages", _CHAT, *_STREAMED),
        "/aggregate_metrics": _post("Statistics over verified rollouts", _VERIFIED),
        "/health": _get("How the server is doing"),
    }
    return {**_document(environment, paths), "components": {"schemas": schemas}}


def describe_model(name: str) -> Schema:
    """The document of a model server."""
    paths = {
        "/v1/responses": _post("The Responses API", _REQUEST, *_STREAMED),
        "/v1/chat/completions": _post("Chat Completions", _CHAT, *_STREAMED),
        "/v1/messages": _post("Anthropic's Messages", _CHAT, *_STREAMED),
        "/v1/models": _get("The one model there is"),
        "/health": _get("How the server is doing"),
    }
    return {"openapi": "3.1.0", "info": {"title": name, "version": "1"}, "paths": paths}


def _row(environment: Environment) -> tuple[Schema, Schema]:
    """The schema of an environment's rows, from its `Task`, and the schemas it refers to."""
    try:
        schema = environment.resources.Task.model_json_schema(ref_template="#/components/schemas/{model}")
    except PydanticInvalidForJsonSchema:  # a field has a type without a JSON schema
        schema = {"type": "object", "properties": {}, "required": ["responses_create_params"]}
    schemas = schema.pop("$defs", {})
    schema["properties"] = {**schema["properties"], "responses_create_params": _REQUEST}
    return schema, schemas


def _document(environment: Environment, paths: Schema) -> Schema:
    about = {"title": environment.name, "description": environment.description, "version": "1"}
    return {"openapi": "3.1.0", "info": {**about, "x-ludus-verifier": verifier_digest(environment)}, "paths": paths}


def _post(summary: str, schema: Schema, *kinds: str) -> Schema:
    body = {"required": True, "content": {"application/json": {"schema": schema}}}
    answered = {"description": "Done", "content": {kind: {} for kind in kinds or ("application/json",)}}
    return {"post": {"summary": summary, "requestBody": body, "responses": {"200": answered, **_REFUSALS}}}


def _get(summary: str) -> Schema:
    return {"get": {"summary": summary, "responses": {"200": {"description": "Done"}, "401": _REFUSALS["401"]}}}
