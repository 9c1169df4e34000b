"""The settings of a task of Inspect: which one, its parameters, who judges, and where its programs run."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    PositiveInt,
    SerializationInfo,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from ludus.resources import ResourcesConfig
from ludus.sandbox.resources import SandboxSettings

#: Settings with entries of their own: `args.NAME`, `models.NAME`, `images.NAME`.
_WITH_ENTRIES = ("args", "models", "images")
#: Parts of the names of judges.
_JUDGES = ("grade", "judge", "scor", "monitor")
#: A model that is the one of the rollout.
POLICY = "policy"


class InspectTask(BaseModel):
    """The name of a task: `PACKAGE/TASK`, or a file and, where it has several, the name of one."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    text: str
    #: the file of the task; None for one of a package
    file: Path | None = None

    @property
    def name(self) -> str:
        """The name of the task alone, or of its file."""
        name = self.text.rpartition("@")[2] if "@" in self.text else self.text.rpartition("/")[2]
        return name.removesuffix(".py")

    @property
    def package(self) -> str:
        """The package of the task; empty for a file."""
        return "" if self.file is not None else self.text.partition("/")[0]


class InspectConfig(ResourcesConfig):
    """Which task is played, with which parameters, and what its judges, users and sandboxes are here."""

    #: the task
    task: InspectTask
    #: parameters of the task: `--set resources.args.NAME=VALUE`
    args: dict[str, Any] = {}
    #: the Python of the worker process, which needs inspect-ai: `FOLDER/.venv/bin/python`; by default this one
    python: str = ""
    #: the score that is the reward: `SCORER`, or `SCORER.KEY` of a score with several values; by default the first
    score: str = ""
    #: the model that judges for scorers: a spec as in `--model`, or `policy` for the model of the rollout
    judge: str = ""
    #: the model that plays the user, for tasks with one
    user: str = ""
    #: a model for each role (`grader`) or name (`openai/gpt-4o`) that a task asks for, where they differ
    models: dict[str, str] = {}
    #: the image, here, for each image or Dockerfile that a task names; `host` stands for this machine's own files
    images: dict[str, str] = {}
    #: which sandbox runs programs, and its limits
    sandbox: SandboxSettings = SandboxSettings()
    #: the most messages of a sample, instead of the task's limit
    message_limit: PositiveInt | None = None
    #: the most tokens of a sample, instead of the task's limit
    token_limit: PositiveInt | None = None
    #: the most model calls of a sample, instead of the task's limit
    turn_limit: PositiveInt | None = None
    #: seconds for a sample, instead of the task's limit
    time_limit: PositiveInt | None = None

    @model_validator(mode="before")
    @classmethod
    def _gather_entries(cls, settings: Any) -> Any:
        """`args.NAME: VALUE` is an entry of `args`."""
        if not isinstance(settings, dict):
            return settings
        gathered = {key: value for key, value in settings.items() if key.partition(".")[0] not in _WITH_ENTRIES}
        for key, value in settings.items():
            name, _, entry = key.partition(".")
            if name in _WITH_ENTRIES:
                before = gathered.get(name) or {}
                gathered[name] = {**before, entry: value} if entry else {**(value or {}), **before}
        return gathered

    @model_serializer(mode="wrap")
    def _dump(self, dump: SerializerFunctionWrapHandler, info: SerializationInfo) -> dict[str, Any]:
        """In a run's identity a file is its name, because its folder may move. It does not hold the Python."""
        dumped: dict[str, Any] = dump(self)
        if info.mode == "json":
            dumped.pop("python")
            dumped["task"] = self.task.name if self.task.file is not None else self.task.text
        return dumped

    def route(self, name: str, *, scoring: bool) -> tuple[Literal["judge", "user"], str]:
        """Who a model is that a task asks for by a role or a name, and its spec; an empty spec if none is set.

        Whom a scorer asks is a judge, and whom a solver asks is somebody that the model talks to, unless the name says
        otherwise.
        """
        judges = scoring or any(word in name for word in _JUDGES)
        part: Literal["judge", "user"] = "judge" if judges and not name.startswith("user") else "user"
        return part, self.models.get(name) or (self.judge if part == "judge" else self.user)

    def setup(self, mode: Literal["rows", "play"]) -> dict[str, Any]:
        """What the worker process is told first."""
        limits = ("message_limit", "token_limit", "turn_limit", "time_limit")
        return {
            "mode": mode,
            "task": self.task.text,
            "file": self.task.file is not None,
            "folder": str(self.task.file.parent) if self.task.file is not None else "",
            "args": self.args,
            **{name: getattr(self, name) for name in limits},
        }
