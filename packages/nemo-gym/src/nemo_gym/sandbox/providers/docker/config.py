"""How containers are made: the options of `docker run`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from nemo_gym.sandbox.providers._shell import checked_variables
from nemo_gym.sandbox.providers.base import SandboxSpec, resources_of

#: The life of a container whose spec names none, in seconds: a crashed process of ours leaves nothing for ever.
DEFAULT_TTL_S = 24 * 3600

#: Variables that would change how the docker program itself works.
_OF_DOCKER = ("LD_", "DOCKER_", "GO")


class DockerCreateConfig(BaseModel):
    """Settings of every container. `provider_options` of a spec take their place, key by key."""

    model_config = ConfigDict(extra="allow", frozen=True)

    network: str | None = None  #: `none` for no network, or the name of a network
    network_alias: str | None = None
    pull: str | None = None  #: `always`, `missing` or `never`
    platform: str | None = None
    runtime: str | None = None
    user: str | None = None
    init: bool = True
    privileged: bool = False
    shm_size: str | None = None
    pids_limit: int | None = None
    cap_add: Sequence[str] = ()
    cap_drop: Sequence[str] = ()
    security_opt: Sequence[str] = ()
    volumes: Sequence[str] = ()
    extra_hosts: Sequence[str] = ()
    env: Mapping[str, str] = Field(default_factory=dict)
    extra_args: Sequence[str] = ()  #: further arguments of `docker run`, before the image
    image_entrypoint: bool = False  #: whether the image's own program runs, with `command` as its arguments
    command: Sequence[str] = ()
    publish_host: str = "127.0.0.1"  #: the address at which ports of a spec are published

    def with_options(self, options: Mapping[str, Any]) -> DockerCreateConfig:
        """These settings with some replaced."""
        return type(self).model_validate({**dict(self), **(self.model_extra or {}), **options}) if options else self


def run_arguments(spec: SandboxSpec, config: DockerCreateConfig, name: str) -> tuple[list[str], dict[str, str]]:
    """The arguments of docker for a new container, and the variables that docker takes from its own environment."""
    assert spec.image is not None
    variables, environment = variable_arguments({**config.env, **spec.env})
    ttl = max(1, int(spec.ttl_s or DEFAULT_TTL_S))
    words = [str(word) for word in spec.entrypoint or ("/bin/sh", "-c", f"sleep {ttl}")]
    program = ["--entrypoint", words[0], spec.image, *words[1:]]
    if config.image_entrypoint and not spec.entrypoint:
        program = [spec.image]
    arguments = [
        *("run", "--detach", "--rm", "--name", name, "--label", "nemo_gym.sandbox=1"),
        *_options(spec, config),
        *variables,
        *map(str, config.extra_args),
        *program,
        *map(str, config.command),
    ]
    return arguments, environment


def variable_arguments(env: Mapping[str, str] | None) -> tuple[list[str], dict[str, str]]:
    """Arguments that set variables inside, and the environment of the docker program that they refer to.

    A value in docker's own environment is not visible to other users of the machine, as its arguments are. Variables
    that docker would read itself are passed as arguments.
    """
    arguments: list[str] = []
    environment = dict(os.environ)
    for name, value in checked_variables(env).items():
        if name in os.environ or name.startswith(_OF_DOCKER):
            arguments += ["--env", f"{name}={value}"]
        else:
            arguments += ["--env", name]
            environment[name] = value
    return arguments, environment


def _options(spec: SandboxSpec, config: DockerCreateConfig) -> Iterator[str]:
    wanted = resources_of(spec)
    single = {
        "--network": config.network,
        "--network-alias": config.network_alias,
        "--pull": config.pull,
        "--platform": config.platform,
        "--runtime": config.runtime,
        "--user": config.user,
        "--shm-size": config.shm_size,
        "--pids-limit": config.pids_limit,
        "--workdir": spec.workdir,
        "--cpus": wanted.cpu,
        "--memory": f"{wanted.memory_mib}m" if wanted.memory_mib else None,
        "--gpus": wanted.gpu or None,
    }
    several = {
        "--cap-add": config.cap_add,
        "--cap-drop": config.cap_drop,
        "--security-opt": config.security_opt,
        "--volume": config.volumes,
        "--add-host": config.extra_hosts,
        "--publish": [f"{config.publish_host}::{port}" for port in spec.ports],
        "--label": [f"{key}={value}" for key, value in spec.metadata.items()],
    }
    for option, value in single.items():
        if value is not None:
            yield from (option, str(value))
    for option, values in several.items():
        for value in values:
            yield from (option, str(value))
    if config.init:
        yield "--init"
    if config.privileged:
        yield "--privileged"
