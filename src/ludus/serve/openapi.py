"""What a resources server offers, as an OpenAPI document: its routes, and its tools with their real schemas."""

from __future__ import annotations

from typing import Any

from ludus.environment import Environment
from ludus.game import Game
from ludus.receipt import verifier_digest

Schema = dict[str, Any]

_OBJECT: Schema = {"type": "object"}
_TASK: Schema = {
    "type": "object",
    "properties": {
        "responses_create_params": {
            "type": "object",
            "properties": {"input": {"anyOf": [{"type": "string"}, {"type": "array", "items": _OBJECT}]}},
            "required": ["input"],
        }
    },
    "required": ["responses_create_params"],
}
_RESPONSE: Schema = {
    "type": "object",
    "properties": {"output": {"type": "array", "items": _OBJECT}},
    "required": ["output"],
}
_REFUSED = {
    "400": {"description": "The body is not JSON, or no session is open"},
    "404": {"description": "There is no such tool in this session"},
    "408": {"description": "The body came too slowly"},
    "410": {"description": "The session is over"},
    "413": {"description": "The body is too large"},
    "422": {"description": "The body does not fit"},
    "429": {"description": "Too many sessions are open"},
    "500": {"description": "The environment failed: stage, kind and cause"},
    "502": {"description": "Something the environment needs did not answer"},
    "503": {"description": "The judge failed, or the server is full"},
    "504": {"description": "A deadline passed"},
}


def describe_resources(environment: Environment, tools: list[Schema]) -> Schema:
    """The document of one environment's resources server."""
    judged = {**_TASK, "properties": {**_TASK["properties"], "response": _RESPONSE}}
    judged["required"] = ["responses_create_params", "response"]
    many = {"type": "object", "properties": {"verify_responses": {"type": "array", "items": _OBJECT}}}
    paths = {
        "/seed_session": _post("Open a session for a row", _TASK),
        "/verify": _post("Judge a response: the request comes back with its reward", judged),
        "/close_session": _post("Close a session", _OBJECT),
        "/aggregate_metrics": _post("Statistics over verified rollouts", {**many, "required": ["verify_responses"]}),
        "/reverify_mode": _get("Whether a stored rollout can be judged again"),
        "/health": _get("How the server is doing"),
    }
    if issubclass(environment.resources, Game):
        paths["/reset"] = _post("Begin a game", _TASK)
        paths["/step"] = _post("Take a turn", judged)
    for tool in tools:
        if tool.get("type") == "function":
            operation = _post(str(tool.get("description") or tool["name"]), tool.get("parameters") or _OBJECT)
            paths[f"/{tool['name']}"] = operation
            operation["post"]["x-ludus-tool"] = True
    named = {"session": {"type": "apiKey", "in": "header", "name": "x-ludus-session"}}
    return {**_document(environment, paths), "components": {"securitySchemes": named}}


def describe_agent(environment: Environment) -> Schema:
    """The document of one environment's agent server."""
    asked = _TASK["properties"]["responses_create_params"]
    many = {"type": "object", "properties": {"verify_responses": {"type": "array", "items": _OBJECT}}}
    paths = {
        "/run": _post("Play a rollout: its record comes back, with its reward", _TASK),
        "/v1/responses": _post("Play without a verdict", asked),
        "/aggregate_metrics": _post("Statistics over verified rollouts", {**many, "required": ["verify_responses"]}),
        "/health": _get("How the server is doing"),
    }
    return _document(environment, paths)


def _document(environment: Environment, paths: Schema) -> Schema:
    about = {"title": environment.name, "description": environment.description, "version": "1"}
    return {
        "openapi": "3.1.0",
        "info": {**about, "x-ludus-verifier": verifier_digest(environment)},
        "paths": paths,
    }


def _post(summary: str, schema: Schema) -> Schema:
    body = {"required": True, "content": {"application/json": {"schema": schema}}}
    answered = {"200": {"description": "Done", "content": {"application/json": {}}}}
    return {"post": {"summary": summary, "requestBody": body, "responses": {**answered, **_REFUSED}}}


def _get(summary: str) -> Schema:
    return {"get": {"summary": summary, "responses": {"200": {"description": "Done"}}}}
