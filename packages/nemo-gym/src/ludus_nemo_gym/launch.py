"""What is to be started: plain data, that says nothing about where it came from.

Each server is an `Instance` with a part that says what it is in Ludus's words: an environment with its settings, an
agent with the names of its resources and its model, a model, or something that runs elsewhere already. Nothing that
these print holds a secret.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ludus_nemo_gym.trees import Tree

DEFAULT_HOST, HEAD_PORT = "127.0.0.1", 11000


@dataclass
class ModelPart:
    """A model: the block that `ludus.models.open_model` takes, and whether it shall tell token ids.

    The key is not in the block, only the name of the variable that it is to be found in.
    """

    block: Tree
    tokens: bool = False
    key: str | None = field(default=None, repr=False)
    unknown: list[str] = field(default_factory=list)


@dataclass
class ResourcesPart:
    """An environment: its name or folder, and settings of its resources. Secret ones are kept apart."""

    environment: str
    settings: Tree = field(default_factory=dict)
    secret_settings: Tree = field(default_factory=dict, repr=False)


@dataclass
class AgentPart:
    """An agent of ours: its type, its settings, and which instances it uses."""

    type: str
    settings: Tree
    resources: str
    model: str


@dataclass
class RemotePart:
    """A server that runs elsewhere already. `environment` is which of ours it is, where it is one."""

    url: str
    environment: str | None = None


@dataclass
class Instance:
    """One server. A port of None is any free one, among the launch's `ports` where it has some."""

    name: str
    kind: str
    implementation: str
    host: str
    port: int | None
    num_workers: int
    part: ResourcesPart | AgentPart | ModelPart | RemotePart

    def what(self) -> str:
        """What it is, in a few words."""
        part = self.part
        if isinstance(part, ResourcesPart):
            return f"environment {part.environment}"
        if isinstance(part, AgentPart):
            return f"agent {part.type} with {part.resources} and {part.model}"
        if isinstance(part, RemotePart):
            return f"runs at {part.url}"
        return " ".join(str(part.block[key]) for key in ("type", "model", "script", "path") if key in part.block)


@dataclass
class Launch:
    """Everything that is to be started. A head's port of 0 is any free one.

    `secrets` holds the values of the variables that the instances name (`api_key_env`): put them into the environment
    of the processes that need them, and nowhere else. `notes` are for the user.
    """

    servers: list[Instance]
    head_host: str = DEFAULT_HOST
    head_port: int = HEAD_PORT
    ports: tuple[int, int] | None = None
    dry_run: bool = False
    notes: list[str] = field(default_factory=list)
    secrets: dict[str, str] = field(default_factory=dict, repr=False)
