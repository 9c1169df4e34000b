"""What to start: plain data, independent of NeMo Gym's configuration format.

Each server is an `Instance`. Its part says what it is in Ludus's terms: an environment with its settings, an agent with
the names of its resources and its model, a model, or a server that already runs. No `repr` of these shows a secret.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ludus_nemo_gym.trees import Tree

DEFAULT_HOST, HEAD_PORT = "127.0.0.1", 11000


@dataclass
class ModelPart:
    """A model: the block that `ludus.models.open_model` takes, and whether it returns token ids.

    The block names the environment variable of the key (`api_key_env`) and never holds the key.
    """

    block: Tree
    tokens: bool = False
    key: str | None = field(default=None, repr=False)
    unknown: list[str] = field(default_factory=list)


@dataclass
class ResourcesPart:
    """An environment: its name or folder, and the settings of its resources, secret ones apart."""

    environment: str
    settings: Tree = field(default_factory=dict)
    secret_settings: Tree = field(default_factory=dict, repr=False)


@dataclass
class HostedPart(ResourcesPart):
    """A resources server whose own code runs: `environment` is its folder. `turns`: it is a game.

    Its settings are those of `HostedConfig`. They name the environment variables of secrets.
    """

    instance: str = ""
    turns: bool = False


@dataclass
class AgentPart:
    """An agent: its type, its settings, the instances of its resources and its model, and its limits.

    The type `nemo_gym` is the agent's own code, in the folder `source` of its settings. It may need no resources.
    """

    type: str
    settings: Tree
    resources: str | None
    model: str
    limits: Tree = field(default_factory=dict)


@dataclass
class RemotePart:
    """A server that already runs. `environment` names the Ludus environment that it serves, if it serves one."""

    url: str
    environment: str | None = None


@dataclass
class Instance:
    """One server. A port of None is any free port, within the launch's `ports` if they are limited."""

    name: str
    kind: str
    implementation: str
    host: str
    port: int | None
    num_workers: int
    part: ResourcesPart | AgentPart | ModelPart | RemotePart

    def description(self) -> str:
        """A short description for a table."""
        part = self.part
        if isinstance(part, HostedPart):
            return f"code in {part.environment}"
        if isinstance(part, ResourcesPart):
            return f"environment {part.environment}"
        if isinstance(part, AgentPart):
            agent = f"code in {part.settings['source']}" if part.type == "nemo_gym" else f"agent {part.type}"
            return f"{agent} with {' and '.join(filter(None, [part.resources, part.model]))}"
        if isinstance(part, RemotePart):
            return f"runs at {part.url}"
        return " ".join(str(part.block[key]) for key in ("type", "model", "script", "path") if key in part.block)


@dataclass
class Launch:
    """Everything that is to be started. A head port of 0 is any free port.

    `secrets` maps environment variables that the instances name (`api_key_env`) to their values: set them in the
    processes that need them, and nowhere else. `notes` are printed for the user.
    """

    servers: list[Instance]
    head_host: str = DEFAULT_HOST
    head_port: int = HEAD_PORT
    ports: tuple[int, int] | None = None
    dry_run: bool = False
    notes: list[str] = field(default_factory=list)
    secrets: dict[str, str] = field(default_factory=dict, repr=False)
