"""The reference of the settings: every class that a user sets, field by field.

A field's meaning is the `#:` comment above it, a comment behind it, its `description`, or the sentences of the class's
docstring that name it.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
import types
import typing
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import annotated_types
from api_pages import comment_of
from page_text import code, escape, paragraphs, table
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from ludus.environment import Environment
from ludus.errors import UserError
from ludus.folder import folders, read_file
from ludus.runtime.installed import entry_points

#: The parts of the page: a heading, what it is about, and its classes as `module:Class`, with what sets each of them.
PARTS: list[tuple[str, str, dict[str, str]]] = [
    (
        "The folder of an environment",
        "What `environment.yaml` may hold. `ludus collect --set PART.KEY=VALUE` replaces a value for one run.",
        {
            "ludus.folder:EnvironmentFile": "environment.yaml",
            "ludus.dataset:Dataset": "datasets[]",
            "ludus.prompt:PromptTemplate": "prompt",
            "ludus.limits:Limits": "limits",
            "ludus.folder:WorkerNeeds": "worker",
        },
    ),
    (
        "Resources",
        "Set in `settings` of `environment.yaml`, or with `--set resources.KEY=VALUE`.",
        {
            "ludus.resources:ResourcesConfig": "resources",
            "ludus.sandbox.resources:SandboxConfig": "resources, of environments that run programs",
            "ludus.sandbox.resources:SandboxSettings": "resources.sandbox",
            "ludus.graders.judge:JudgeModelConfig": "resources, of environments with a judge",
            "ludus.graders.judge:JudgeConfig": "resources, of environments with a judge that compares answers",
            "ludus.integrations.mcp:McpResources.Config": "resources, of environments with an MCP server",
            "ludus.remote.resources:RemoteConfig": "resources on a server (`--resources URL`)",
        },
    ),
    (
        "Models",
        "Set with `--set model.KEY=VALUE`, or in a YAML file that `--model` names.",
        {
            "ludus.model:ModelConfig": "every model",
            "ludus.models.openai:OpenAIModel.Config": "`openai:NAME` and `URL#NAME`",
            "ludus.models.token_server:TokenServerModel.Config": "`vllm:` and `sglang:`",
            "ludus.models.vllm:VllmModel.Config": "`vllm:URL#NAME`",
            "ludus.models.sglang:SglangModel.Config": "`sglang:URL#NAME`",
            "ludus.models.azure:AzureModel.Config": "`azure:DEPLOYMENT`",
            "ludus.models.remote:RemoteModel.Config": "`remote:URL`",
            "ludus.models.local:LocalModel.Config": "`local` and `local:FILE`",
            "ludus_transformers.model:TransformersModel.Config": "`transformers:PATH_OR_NAME`",
            "ludus_trainers.token_engine:TokenEngine.Config": "a trainer's own engine, in Python",
            "ludus.http.retries:Retries": "retries of an endpoint",
        },
    ),
    (
        "Servers, prices and conversions",
        "What single commands and Python programs read.",
        {
            "ludus.serve.plan:Plan": "servers that a Python program starts together",
            "ludus.serve.plan:Server": "one server of such a plan",
            "ludus.serve.policies:Policy": "the field `policy` of a request to `/run`",
            "ludus.store.prices:Price": "one entry of the file of `ludus profile --prices`",
            "ludus_data.mapping:RowMapping": "the file of `ludus data convert --layout FILE`",
        },
    ),
    (
        "Harnesses",
        "The YAML file that declares an agent program for the agent `harness`.",
        {
            "ludus.agents.harness.declaration:Declaration": "the file",
            "ludus.agents.harness.declaration:Install": "install",
            "ludus.agents.harness.declaration:ShellTool": "shell",
            "ludus.agents.harness.declaration:ToolServer": "tools",
        },
    ),
]

#: Classes that look like settings and are none: what they are instead.
NOT_SETTINGS = {
    "ludus_sandboxes.wire:SpecMessage": "a message between a sandbox server and its client",
    "ludus_sandboxes.wire:ExecMessage": "a message between a sandbox server and its client",
    "ludus_sandboxes.wire:FileMessage": "a message between a sandbox server and its client",
    "ludus.agents.simulated_user:UserCall": "a part of a recorded rollout",
    "ludus.agents.conversation:Ending": "a part of a recorded rollout",
    "ludus.task:Task": "a row",
}

_TYPES: dict[Any, str] = {
    str: "text",
    int: "integer",
    float: "number",
    bool: "true or false",
    Any: "anything",
    Path: "path",
    type(None): "null",
}


@dataclass(frozen=True)
class SettingsClass:
    """A class of settings, under the heading that the page gives it."""

    heading: str
    place: str
    cls: type[BaseModel]


@cache
def settings_classes() -> list[tuple[str, str, list[SettingsClass]]]:
    """The parts of the page, with the classes of agents and of environments, which are found by name."""
    parts = [
        (title, what, [SettingsClass(_heading(name), place, _found(name)) for name, place in classes.items()])
        for title, what, classes in PARTS
    ]
    agents = [SettingsClass("AgentConfig", "every agent", _found("ludus.agent:AgentConfig"))]
    for entry in sorted(entry_points("ludus.agents"), key=lambda each: each.name):
        if entry.value.startswith("ludus."):
            agents.append(SettingsClass(entry.name, f"agent: {{type: {entry.name}}}", entry.load().Config))
    of_agents = ("Agents", "Set in `agent` of `environment.yaml`, or with `--set agent.KEY=VALUE`.", agents)
    of_environments = (
        "Single environments",
        "Settings of `resources` that one environment adds. The environment's own page says more.",
        _of_environments(),
    )
    return [*parts[:2], of_agents, *parts[2:], of_environments]


def settings_reference() -> str:
    """The page's body."""
    lines = []
    for title, what, classes in settings_classes():
        lines += [f"## {title}", what]
        for each in classes:
            lines += [f"### {each.heading}", f"Where: {each.place}.", *_body(each)]
    return "\n\n".join(lines)


def fields_of(each: SettingsClass) -> list[list[str]]:
    """For each field its name, type, default and meaning, as Markdown."""
    notes = meanings(each)
    rows = []
    for name, field in each.cls.model_fields.items():
        shown = code(field.alias or name)
        rows.append([shown, _type(field.annotation, field.metadata), _default(field), notes[name]])
    return rows


def meanings(each: SettingsClass) -> dict[str, str]:
    """What each field of a class means; an empty text where neither the code nor a README says it."""
    cls, found = each.cls, {}
    for name, field in cls.model_fields.items():
        owner = _owner(cls, name)
        said = field.description or _comment(cls, name) or _sentences(cls, owner, name)
        found[name] = said or _readme(each.heading).get(name, "")
    return found


@cache
def _readme(environment: str) -> dict[str, str]:
    """What the README of an environment says about each setting of its resources."""
    folder = folders().get(environment)
    found: dict[str, str] = {}
    for line in (folder / "README.md").read_text().split("\n") if folder is not None else ():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if len(cells) in (2, 3):
            for part, name in re.findall(r"`(resources\.|\.)?(\w+)(?:\.\w+)*`", cells[0]):
                text = (
                    cells[-1] if cells[-1] not in ("see above", "") else found.get(name, "see the environment's README")
                )
                found[name] = text if part else found.get(name, text)
    return found


def _of_environments() -> list[SettingsClass]:
    found = []
    for name in folders():
        cls: type[BaseModel] | None
        try:
            cls = Environment.load(name).resources.Config
        except UserError:  # an extra is missing: the class is read without it where that works
            cls = _without_extra(name)
        if cls is not None and cls.__module__.startswith(("ludus.environments", "ludus_lab")):
            found.append(SettingsClass(name, f"`--set resources.KEY=VALUE` with the environment `{name}`", cls))
    return found


def _without_extra(name: str) -> type[BaseModel] | None:
    file, _, cls = read_file(folders()[name]).resources.partition(":")
    try:
        module = import_module(f"ludus.environments.{name}.{file.removesuffix('.py')}")
    except (UserError, ImportError):
        return None
    config = getattr(module, cls).Config
    return config if isinstance(config, type) else None


def _body(each: SettingsClass) -> list[str]:
    rows = fields_of(each)
    text = _rest_of_docstring(each.cls)
    return [*([text] if text else []), *([table(["setting", "type", "default", "meaning"], rows)] if rows else [])]


def _rest_of_docstring(cls: type[BaseModel]) -> str:
    """The docstring's first paragraph, and each further one that says more than the table does."""
    first, *rest = inspect.cleandoc(vars(cls).get("__doc__") or "").split("\n\n")
    names = [name for name in cls.model_fields if not _comment(cls, name)]
    used = re.compile("|".join(rf"`{re.escape(name)}[`:. ]" for name in names) or "(?!)")
    kept = [part for part in rest if any(used.search(sentence) is None for sentence in _split(part))]
    return paragraphs("\n\n".join([first, *kept]))


def _comment(cls: type[BaseModel], name: str) -> str:
    """The comment on a field, of the class itself or of the nearest class that declares the field with one."""
    owners = (each for each in cls.__mro__ if name in vars(each).get("__annotations__", {}))
    return next((text for each in owners if (text := _comments(each).get(name))), "")


def _owner(cls: type[BaseModel], name: str) -> type[BaseModel]:
    """The class that declares a field."""
    return next((each for each in cls.__mro__ if name in vars(each).get("__annotations__", {})), cls)


def _split(text: str) -> list[str]:
    """The sentences of a docstring."""
    return re.split(r"(?<=\.) (?=[A-Z`])", " ".join(text.split()))


def _found(name: str) -> type[BaseModel]:
    module, _, path = name.partition(":")
    found: Any = import_module(module)
    for part in path.split("."):
        found = getattr(found, part)
    cls: type[BaseModel] = found
    return cls


def _heading(name: str) -> str:
    return name.partition(":")[2].removesuffix(".Config")


def _type(annotation: Any, metadata: list[Any] | tuple[Any, ...] = ()) -> str:
    """A type in words."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is typing.Annotated:
        return _type(arguments[0], arguments[1:])
    if origin is Literal:
        return " or ".join(code(str(each)) for each in arguments)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(dict.fromkeys(_type(each) for each in arguments))
    if origin in (list, set, frozenset):
        return f"list of {_type(arguments[0])}"
    if origin is tuple:
        return f"list of {' and '.join(_type(each) for each in arguments)}"
    if origin is dict or annotation is dict:
        return "mapping"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return f"mapping, see {annotation.__name__}"
    words = _TYPES.get(annotation, escape(getattr(annotation, "__name__", str(annotation))))
    return words + "".join(f", {limit}" for limit in map(_limit, metadata) if limit)


def _limit(given: Any) -> str:
    match given:
        case annotated_types.Gt(gt=value):
            return f"above {value}"
        case annotated_types.Ge(ge=value):
            return f"{value} or more"
        case annotated_types.Lt(lt=value):
            return f"below {value}"
        case annotated_types.Le(le=value):
            return f"{value} or less"
        case annotated_types.MinLen(min_length=value):
            return f"length {value} or more"
    return ""


def _default(field: Any) -> str:
    value = field.get_default(call_default_factory=True)
    if value is PydanticUndefined:
        return "required"
    if isinstance(value, BaseModel):
        return "its own defaults"
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    text = str(value)
    return code(text if len(text) <= 60 else f"{text[:57]}...") if text else "empty"


@cache
def _comments(cls: type[BaseModel]) -> dict[str, str]:
    """The comment on each field of a class body."""
    source = textwrap.dedent(inspect.getsource(cls))
    lines = tuple(source.split("\n"))
    (body,) = ast.parse(source).body
    members = [node for node in body.body if isinstance(node, ast.AnnAssign)] if isinstance(body, ast.ClassDef) else []
    found = {ast.unparse(node.target): paragraphs(comment_of(node, lines)) for node in members}
    return {name: text for name, text in found.items() if text}


def _sentences(cls: type[BaseModel], owner: type[BaseModel], name: str) -> str:
    """The sentences of the docstrings that name a field in backticks."""
    for each in (cls, owner):
        parts = _split(vars(each).get("__doc__") or "")
        said = [part for part in parts if re.search(rf"`{re.escape(name)}[`:. ]", part)]
        if said:
            return paragraphs(" ".join(said))
    return ""
