"""Several sandboxes from a Compose file, one for each service."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import uuid
from collections.abc import Mapping
from dataclasses import fields, replace
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any, Self

import yaml

from nemo_gym.sandbox._async_sandbox import AsyncSandbox
from nemo_gym.sandbox.providers.base import SandboxCreateError, SandboxExecResult, SandboxSpec, SupportsSandboxNetwork
from nemo_gym.sandbox.providers.registry import create_provider

#: `${NAME}` or `${NAME:-default}`.
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::?-([^}]*))?\}")
_HEALTH_POLL = 1.0


class AsyncSandboxCompose:
    """The services of a Compose file as sandboxes that find each other by their names.

    async with AsyncSandboxCompose({"docker": {}}, "compose.yaml") as services:
        result = await services.exec("web", "curl http://db:8000")

    Of a service, these keys count: image, entrypoint, command, environment, working_dir, ports, expose, depends_on and
    healthcheck. `service_specs` adds to a service what the file cannot say, such as resources or another image.
    """

    def __init__(
        self,
        provider: Any,
        compose_file: str | Path,
        *,
        service_specs: Mapping[str, SandboxSpec] | None = None,
        timeout_s: float = 1200,
        environment: Mapping[str, str] | None = None,
        owns_provider: bool = True,
    ) -> None:
        self._provider = create_provider(provider) if isinstance(provider, Mapping) else provider
        self._owns_provider = owns_provider
        self._timeout_s = timeout_s
        self._services = _services(Path(compose_file), {**os.environ, **(environment or {})})
        self._specs = {name: _spec(service) for name, service in self._services.items()}
        for name, given in (service_specs or {}).items():
            if name not in self._specs:
                raise ValueError(f"{compose_file} has no service {name}: it has {', '.join(self._specs)}")
            self._specs[name] = _merged(self._specs[name], given)
        self._network: str | None = None
        self.sandboxes: dict[str, AsyncSandbox] = {}  #: the services that run

    def service(self, name: str) -> AsyncSandbox:
        """The sandbox of a service that runs."""
        if name not in self.sandboxes:
            raise KeyError(f"service {name} does not run: {', '.join(self.sandboxes) or 'start() first'}")
        return self.sandboxes[name]

    __getitem__ = service

    async def start(self) -> Self:
        """Start the services in the order of `depends_on`. If one does not start, all are stopped."""
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._start()
        except TimeoutError as error:
            await self.stop()
            raise SandboxCreateError(f"the services did not start within {self._timeout_s:g} s") from error
        except BaseException:
            await self.stop()
            raise
        return self

    async def exec(self, service: str, command: str, **options: Any) -> SandboxExecResult:
        """Run a command in a service, with the options of `AsyncSandbox.exec`."""
        return await self.service(service).exec(command, **options)

    async def stop(self) -> None:
        """Stop all services, the last one first, and the network. After an error, call it again."""
        for name in reversed(list(self.sandboxes)):
            await self.sandboxes[name].stop()
            del self.sandboxes[name]
        if self._network is not None:
            await self._provider.remove_network(self._network)
            self._network = None
        if self._owns_provider:
            await self._provider.aclose()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    async def _start(self) -> None:
        if len(self._specs) > 1:
            if not isinstance(self._provider, SupportsSandboxNetwork):
                name = getattr(self._provider, "name", type(self._provider).__name__)
                raise SandboxCreateError(f"sandbox provider {name} has no networks between sandboxes: use docker")
            self._network = await self._provider.create_network(f"nemo-gym-{uuid.uuid4().hex[:12]}")
        for name in _order(self._services):
            spec = self._specs[name]
            if self._network is not None:
                options = {**spec.provider_options, "network": self._network, "network_alias": name}
                spec = replace(spec, provider_options=options)
            sandbox = AsyncSandbox(self._provider, spec, owns_provider=False)
            self.sandboxes[name] = await sandbox.start()
            await self._healthy(name, sandbox)

    async def _healthy(self, name: str, sandbox: AsyncSandbox) -> None:
        """Wait until the service's own check succeeds. `timeout_s` ends the wait."""
        test = (self._services[name].get("healthcheck") or {}).get("test")
        if not test or test == ["NONE"]:
            return
        words = [str(word) for word in test] if not isinstance(test, str) else ["CMD-SHELL", test]
        command = shlex.join(words[1:]) if words[0] == "CMD" else " ".join(words[1:])
        while (await sandbox.exec(command, timeout_s=30)).return_code != 0:  # noqa: ASYNC110 - nobody tells us
            await asyncio.sleep(_HEALTH_POLL)


def _services(file: Path, variables: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """The services of a file, with the variables replaced in its values."""
    services = (yaml.safe_load(file.read_text(encoding="utf-8")) or {}).get("services")
    if not isinstance(services, dict) or not services:
        raise ValueError(f"{file} has no services")
    for name, service in services.items():
        if not isinstance(service, dict) or not service.get("image"):
            raise ValueError(f"{file}: service {name} names no image (images are not built here)")
    return {str(name): _filled(service, variables) for name, service in services.items()}


def _filled(value: Any, variables: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _filled(item, variables) for key, item in value.items()}
    if isinstance(value, list):
        return [_filled(item, variables) for item in value]
    if isinstance(value, str):
        return _VARIABLE.sub(lambda match: variables.get(match[1]) or match[2] or "", value)
    return value


def _spec(service: Mapping[str, Any]) -> SandboxSpec:
    variables = service.get("environment") or {}
    if isinstance(variables, list):
        variables = dict(str(line).partition("=")[::2] for line in variables)
    ports = [str(port).partition("/")[0].rpartition(":")[2] for port in _port_texts(service)]
    return SandboxSpec(
        image=str(service["image"]),
        workdir=service.get("working_dir"),
        env={str(name): "" if value is None else str(value) for name, value in variables.items()},
        entrypoint=_words(service.get("entrypoint")) or None,
        ports=tuple(dict.fromkeys(int(port) for port in ports)),
        provider_options={"image_entrypoint": True, "command": _words(service.get("command"))},
    )


def _port_texts(service: Mapping[str, Any]) -> list[Any]:
    listed = [*(service.get("ports") or ()), *(service.get("expose") or ())]
    return [port["target"] if isinstance(port, Mapping) else port for port in listed]


def _words(command: Any) -> list[str]:
    return shlex.split(command) if isinstance(command, str) else [str(word) for word in command or ()]


def _merged(base: SandboxSpec, given: SandboxSpec) -> SandboxSpec:
    """What `given` sets wins; variables, files and options of both count."""
    changes: dict[str, Any] = {}
    for field in fields(SandboxSpec):
        ours, theirs = getattr(base, field.name), getattr(given, field.name)
        if isinstance(theirs, Mapping):
            changes[field.name] = {**ours, **theirs}
        elif theirs != getattr(SandboxSpec(), field.name):
            changes[field.name] = theirs
    return replace(base, **changes)


def _order(services: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The services, each after those that it depends on."""
    needs = {name: list(service.get("depends_on") or ()) for name, service in services.items()}
    try:
        order = list(TopologicalSorter(needs).static_order())
    except CycleError as error:
        raise ValueError(f"services depend on each other in a circle: {', '.join(error.args[1])}") from error
    if unknown := set(order) - set(services):
        raise ValueError(f"depends_on names services that the file does not have: {', '.join(sorted(unknown))}")
    return order
