"""Which provider runs programs on this machine, and why.

`auto` takes the first that isolates and works. A provider that does not isolate is taken only by name.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module

from ludus.errors import UserError, did_you_mean
from ludus.sandbox.pool import SandboxPool
from ludus.sandbox.protocol import SandboxProvider
from ludus.sandbox.remote import RemoteProvider

#: Each provider's module, which has `problem()` and the class. Those that `auto` may take stand first.
_PROVIDERS = {
    "bubblewrap": ("ludus.sandbox.bubblewrap", "BubblewrapProvider"),
}
_AUTOMATIC = ("bubblewrap",)

_PACKAGES = {"bubblewrap": "bubblewrap", "oci": "runc"}
_INSTALLERS = {
    "apt-get": "apt-get install -y",
    "dnf": "dnf install -y",
    "apk": "apk add",
    "pacman": "pacman -S --noconfirm",
    "zypper": "zypper install -y",
}


@dataclass(frozen=True)
class Found:
    """What is known about a provider on this machine."""

    name: str
    problem: str | None  #: why it cannot be used, or None
    install: str | None  #: the command that installs it, if that would help


def survey() -> list[Found]:
    """All providers that run on this machine, the best first."""
    return [Found(name, _problem(name), install_command(name)) for name in _PROVIDERS]


def chosen() -> Found | None:
    """The provider that `auto` takes, or None."""
    return next((found for found in survey() if found.name in _AUTOMATIC and found.problem is None), None)


async def open_provider(name: str = "auto", *, urls: Sequence[str] = (), warm: int | None = None) -> SandboxProvider:
    """A provider with a pool of warm sandboxes. Raises a `UserError` that says what to install."""
    if name == "remote":
        return RemoteProvider(urls)
    if name == "auto":
        found = chosen()
        if found is None:
            first = survey()[0]
            hint = f"Install it with: {first.install}" if first.install else "See: ludus doctor"
            raise UserError(f"code needs a sandbox, and this machine has none: {first.problem}", hint)
        name = found.name
    if name not in _PROVIDERS:
        raise UserError(f"unknown sandbox provider {name}", did_you_mean(name, ["auto", "remote", *_PROVIDERS]))
    if (problem := _problem(name)) is not None:
        command = install_command(name)
        raise UserError(f"sandbox provider {name}: {problem}", f"Install it with: {command}" if command else "")
    return SandboxPool(local_provider(name), warm)


def local_provider(name: str) -> SandboxProvider:
    """A provider by its name, without a pool."""
    module, kind = _PROVIDERS[name]
    opened: SandboxProvider = getattr(import_module(module), kind)()
    return opened


def install_command(name: str) -> str | None:
    """The command that installs what a provider needs, for this machine's package manager."""
    for program, command in _INSTALLERS.items():
        if name in _PACKAGES and shutil.which(program) is not None:
            return f"{command} {_PACKAGES[name]}"
    return None


@cache
def _problem(name: str) -> str | None:
    found: str | None = import_module(_PROVIDERS[name][0]).problem()
    return found
