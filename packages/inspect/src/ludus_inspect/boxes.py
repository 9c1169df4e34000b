"""What a task's sandbox is here: one of ours, with the image that stands for the task's."""

from __future__ import annotations

from typing import Any

from ludus.sandbox.protocol import SandboxError, SandboxLimits, SandboxSpec
from ludus_inspect.settings import InspectConfig

#: The image that is no image: the files of this machine.
HOST = "host"
#: The limits of a container have no counterpart in a task: what agents' programs need.
_LIMITS = SandboxLimits(memory_mb=2048, processes=256, disk_mb=1024, output_bytes=10 << 20)


def spec_of(services: dict[str, Any], config: InspectConfig) -> tuple[SandboxSpec, str | None, str]:
    """The spec of a task's sandbox, the folder of its programs (None is the sandbox's own), and its name."""
    if len(services) != 1:
        where = next(iter(services.values())).get("where")
        raise SandboxError(
            f"{where} has the services {', '.join(services)}: a sandbox here is one machine, without a network"
        )
    ((name, service),) = services.items()
    wanted = service.get("image") or service.get("build")
    image = config.sandbox.image or _mapped(service, config)
    if wanted and image is None:
        remedy = f"--set resources.sandbox.image=IMAGE, or {HOST} for the files of this machine"
        raise SandboxError(f"{service.get('where')} wants {wanted}, and no image here stands for it: {remedy}")
    spec = SandboxSpec(
        image=None if image == HOST else image,
        limits=_LIMITS,
        env=service.get("env") or {},
        background=True,
        unix_sockets=True,
    )
    sandbox = config.sandbox.model_copy(update={"image": None})
    return sandbox.applied_to(spec), service.get("folder"), name


def _mapped(service: dict[str, Any], config: InspectConfig) -> str | None:
    names = (service.get("image"), service.get("build"), "*")
    return next((config.images[name] for name in names if name and name in config.images), None)
