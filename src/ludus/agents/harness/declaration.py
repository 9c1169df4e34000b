"""The declaration of a harness: how an agent program is installed, started and pointed at our model. Data, not code.

Ours are YAML files in `declarations/`; a user's own is a YAML file beside `environment.yaml`. In commands, variables
and files these names in braces are filled in: `{url}` and `{key}` of the model, `{model}`, its name, `{home}` and
`{workdir}`, `{prompt}`, the path of a file with the prompt, and `{tools}`, the URL of an MCP server with the task's
tools.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field, PositiveInt, ValidationInfo, field_validator, model_validator

from ludus.errors import UserError, did_you_mean
from ludus.runtime.settings import checked, read_yaml
from ludus.sandbox.equipment import PROGRAM_LIMITS
from ludus.sandbox.protocol import SandboxLimits

FOLDER = Path(__file__).with_name("declarations")

_NAMES = ("url", "key", "model", "home", "workdir", "prompt", "tools")
_FILLED_IN = re.compile(rf"\{{({'|'.join(_NAMES)})\}}")

_FORMS = {
    "npm": (r"(@[\w.-]+/)?[\w.-]+", "the name of a package, such as @openai/codex"),
    "pip": (r"[\w.-]+(\[[\w,.-]+\])?", "the name of a package, such as aider-chat"),
    "version": (r"\d[\w.+-]*", "an exact version, such as 1.2.3"),
    "python": (r"3\.\d+", "a version of Python, such as 3.12"),
}


class Install(BaseModel):
    """Where a program comes from: a package of npm or of PyPI, with its exact version."""

    model_config = ConfigDict(extra="forbid")

    #: a package of npm
    npm: str | None = None
    #: a package of PyPI, in place of one of npm
    pip: str | None = None
    #: the exact version
    version: str
    #: other packages with their versions, such as `node: "22"`
    also: dict[str, str] = {}
    #: the version of Python that a package of PyPI needs, if not ours
    python: str | None = None

    @field_validator("npm", "pip", "version", "python")
    @classmethod
    def _has_its_form(cls, value: str | None, field: ValidationInfo) -> str | None:
        form, example = _FORMS[str(field.field_name)]
        if value is not None and not re.fullmatch(form, value):
            raise ValueError(f"{value!r} is not {example}")
        return value

    @model_validator(mode="after")
    def _names_one(self) -> Install:
        if (self.npm is None) == (self.pip is None):
            raise ValueError("name the package as either npm or pip")
        return self


class ShellTool(BaseModel):
    """How a model runs a command with the program's own tool: for `ludus harness check`."""

    model_config = ConfigDict(extra="forbid")

    #: the name of the program's tool
    tool: str
    #: which argument holds the command
    argument: str = "command"
    #: other arguments that the tool demands
    other: dict[str, Any] = {}
    #: the command that ends the work, if the program goes on after an answer
    last: str | None = None


class ToolServer(BaseModel):
    """How the program learns of an MCP server with the task's tools: what is added to the declaration.

    A file that is there already gets further keys.
    """

    model_config = ConfigDict(extra="forbid")

    #: more arguments of the program
    arguments: list[str] = []
    #: more variables
    env: dict[str, str] = {}
    #: more files, or more of a file that the program has anyway
    files: dict[str, Any] = {}


class Declaration(BaseModel):
    """One agent program."""

    model_config = ConfigDict(extra="forbid")

    #: what `agent.harness` calls the program
    name: str = Field(pattern=r"^[a-z][a-z0-9_-]*$")
    #: one line for `ludus harness`
    about: str = ""
    #: where the program comes from
    install: Install
    #: the API that the program speaks
    dialect: Literal["responses", "chat", "messages", "gemini"]
    #: the program and its arguments. The prompt is never among them
    command: list[str] = Field(min_length=1)
    #: where the program reads the prompt: its standard input, or the file `{prompt}`
    prompt: Literal["stdin", "file"] = "stdin"
    #: a command that removes what the program leaves in the task's folder; it runs however the program ended
    cleanup: list[str] = []
    #: variables of the program
    env: dict[str, str] = {}
    #: files to write before the start, by path; what is not a text is written as JSON
    files: dict[str, Any] = {}
    #: the exit codes of a program that ended as it should
    exit_codes: list[int] = [0]
    #: regular expressions: a conversation whose first request contains one is a side call
    side: list[str] = []
    #: regular expressions: text that the program adds and that differs each time, such as ids and the date. After a
    #: crash, a request that differs in nothing else gets its saved answer
    volatile: list[str] = []
    #: what happens to tools that only the provider's servers could run
    server_tools: Literal["refuse", "drop"] = "refuse"
    #: the memory in MB that the program needs at least
    memory_mb: PositiveInt = PROGRAM_LIMITS.memory_mb
    #: the processes that the program needs at least, threads included
    processes: PositiveInt = PROGRAM_LIMITS.processes
    #: how a model runs a command, for `ludus harness check`
    shell: ShellTool | None = None
    #: what a model writes to append the line `hi` to hello.txt, if the program has no tools: for the check, too
    edit: str | None = None
    #: how the program learns of the task's tools
    tools: ToolServer | None = None

    @field_validator("side", "volatile")
    @classmethod
    def _are_patterns(cls, patterns: list[str]) -> list[str]:
        for pattern in patterns:
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"{pattern!r} is not a regular expression: {error}") from None
        return patterns

    @field_validator("command", "cleanup", "env")
    @classmethod
    def _names_in_braces_are_known(cls, texts: list[str] | dict[str, str]) -> list[str] | dict[str, str]:
        for name in re.findall(r"(?<!\$)\{(\w+)\}", " ".join(texts.values() if isinstance(texts, dict) else texts)):
            hint = did_you_mean(name.lower(), _NAMES)  # braces of a shell or of JSON are like none of ours
            if name not in _NAMES and hint.startswith("Did"):
                raise ValueError(f"{{{name}}} is not filled in. {hint}")
        return texts

    def is_side(self, text: str) -> bool:
        """Whether a conversation is a side call, by the text of its first request."""
        return any(re.search(pattern, text) for pattern in self.side)

    @property
    def limits(self) -> SandboxLimits:
        """The limits that the program needs at least."""
        return replace(PROGRAM_LIMITS, memory_mb=self.memory_mb, processes=self.processes)

    def with_tools(self) -> Declaration:
        """The declaration of a program that learns of the MCP server with the task's tools."""
        if self.tools is None:
            return self
        files = {**self.files, **self.tools.files}
        for path in self.files.keys() & self.tools.files.keys():
            files[path] = {**self.files[path], **self.tools.files[path]}
        command, env = [*self.command, *self.tools.arguments], {**self.env, **self.tools.env}
        return self.model_copy(update={"command": command, "env": env, "files": files})

    @property
    def label(self) -> str:
        """The name with the version of the program."""
        return f"{self.name} {self.install.version}"


def filled_in(text: str, values: Mapping[str, str]) -> str:
    """A text of a declaration with its names in braces filled in. Other braces stay."""
    return _FILLED_IN.sub(lambda match: values[match[1]], text)


def file_content(content: Any, values: Mapping[str, str]) -> bytes:
    """The content of a declared file. What is not a text is written as JSON."""
    text = content if isinstance(content, str) else orjson.dumps(content, option=orjson.OPT_INDENT_2).decode()
    return filled_in(text, values).encode()


def declared() -> dict[str, Path]:
    """The declarations that come with Ludus, by name."""
    return {path.stem: path for path in sorted(FOLDER.glob("*.yaml"))}


def read_declaration(which: str, folder: Path | None = None) -> Declaration:
    """A declaration by its name, or from a YAML file: beside `environment.yaml` in `folder`, or in this folder."""
    if which.endswith((".yaml", ".yml")):
        places = [place / which for place in (folder, Path.cwd()) if place is not None]
        path = next((place for place in places if place.is_file()), None)
        if path is None:
            where = "here" if folder is None else "beside environment.yaml, nor here"
            raise UserError(f"there is no {which:.200} {where}", "Check the name of the file")
    else:
        known = declared()
        path = known.get(which)
        if path is None:
            raise UserError(f"unknown harness {which:.80}", f"{did_you_mean(which, known)} Yours is a file, NAME.yaml")
    fields = read_yaml(path)
    if not isinstance(fields, dict):
        raise UserError(f"{path} is not a declaration", "Begin with: name: NAME")
    declaration: Declaration = checked(Declaration, fields, str(path))
    return declaration
