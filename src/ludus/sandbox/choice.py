"""Which provider runs programs on this machine, and why.

`auto` takes bubblewrap for a spec without an image and oci for a spec with one. A provider that does not isolate is
taken only by name.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module

from ludus.errors import UserError, did_you_mean, missing_package
from ludus.runtime.installed import named_entry_points, packaged
from ludus.sandbox.features import problem_with
from ludus.sandbox.pool import SandboxPool
from ludus.sandbox.protocol import ATTACKS, SandboxError, SandboxProvider, SandboxSpec
from ludus.sandbox.router import SandboxRouter

#: The providers that run programs on this machine, the best first.
_PROVIDERS = {
    "bubblewrap": "ludus.sandbox.bubblewrap:BubblewrapProvider",
    "oci": "ludus.sandbox.oci:OciProvider",
    "process": "ludus.sandbox.process:ProcessProvider",
}
#: The entry point group of providers in other packages. They are taken by name only, and without a pool.
_GROUP = "ludus.sandboxes"
#: The services that the package ludus-sandboxes knows.
_HOSTED = ("daytona", "e2b", "modal")
#: What `auto` takes for a spec without an image, and for one with an image.
_WITHOUT_IMAGE, _WITH_IMAGE = "bubblewrap", "oci"

_INSTALLERS = {
    "apt-get": "apt-get install -y",
    "dnf": "dnf install -y",
    "apk": "apk add",
    "pacman": "pacman -S --noconfirm",
    "zypper": "zypper install -y",
}


@dataclass(frozen=True)
class ProviderStatus:
    """What is known about a provider on this machine."""

    name: str
    problem: str | None  #: why it cannot be used, or None
    install: str | None  #: the command that installs it, if that would help
    about: str  #: what its sandboxes are made of
    isolates: bool  #: whether hostile code may run in it
    stops: tuple[str, ...]  #: the names of the attacks that it stops
    allows: tuple[str, ...]  #: the names of the attacks that it does not stop

    def error(self, what: str) -> UserError:
        """The error for a user who needs this provider and cannot have it."""
        hint = f"Install it with: {self.install}" if self.install else "See: ludus doctor"
        return UserError(f"{what}: {self.problem}", hint)


def survey() -> list[ProviderStatus]:
    """All providers that run on this machine, the best first."""
    return [find(name) for name in _PROVIDERS]


def hosted_problems() -> dict[str, str | None]:
    """Why each provider of an installed package cannot be used, or None where it can. Empty without such a package."""
    return {entry.name: entry.load().problem() for entry in named_entry_points(_GROUP).values()}


def find(name: str) -> ProviderStatus:
    """What is known about one provider."""
    kind = provider_class(name)
    return ProviderStatus(
        name,
        problem=_problem(name),
        install=install_command(name),
        about=kind.about,
        isolates=kind.isolates,
        stops=tuple(sorted(kind.claims)),
        allows=tuple(sorted(ATTACKS - kind.claims)),
    )


def provider_class(name: str) -> type[SandboxProvider]:
    """The class of a provider that runs on this machine."""
    module, _, class_name = _PROVIDERS[name].partition(":")
    kind: type[SandboxProvider] = getattr(import_module(module), class_name)
    return kind


def explain() -> list[str]:
    """Which provider `auto` takes and why, a line for specs without an image and one for specs with one."""
    lines = []
    for what, name in (("programs", _WITHOUT_IMAGE), ("programs of an image", _WITH_IMAGE)):
        if (problem := find(name).problem) is None:
            lines.append(f"auto takes {name} for {what}: it isolates hostile code, and it works on this machine")
        else:
            lines.append(f"auto has no sandbox for {what}: {problem}")
    return lines


def check_spec(name: str, spec: SandboxSpec, images_from_rows: bool = False) -> None:
    """Raise a `UserError` if a provider lacks what a spec needs.

    Where rows may name an image, a provider that takes images is checked when a row's sandbox opens.
    """
    chosen = (_WITHOUT_IMAGE if spec.image is None else _WITH_IMAGE) if name == "auto" else name
    kind = provider_class(chosen) if chosen in _PROVIDERS else None
    if kind is None or (images_from_rows and "image" not in kind.lacks):
        return
    if (problem := problem_with(kind, spec)) is not None:
        others = [other for other in map(provider_class, _PROVIDERS) if other.isolates]
        usable = [other.name for other in others if problem_with(other, spec) is None]
        hint = f"This environment can use: {', '.join(usable)}" if usable else "Leave out resources.sandbox.image"
        raise UserError(problem, hint)


async def open_provider(
    name: str = "auto", *, image: bool = False, urls: Sequence[str] = (), warm: int | None = None
) -> SandboxProvider:
    """A provider with a pool of warm sandboxes: see `make_provider`."""
    return make_provider(name, image, urls, warm)


def make_provider(name: str, image: bool, urls: Sequence[str], warm: int | None = None) -> SandboxProvider:
    """A provider, whose sandboxes open later. Raises a `UserError` that says what to install.

    `image` says whether sandboxes with an image will be opened: `auto` then needs a provider that takes one.
    """
    if name == "remote":
        remote: SandboxProvider = packaged("ludus.sandbox_servers", "remote", "sandbox provider remote", "sandboxes")(
            urls
        )
        return remote
    if name == "auto":
        needed = find(_WITH_IMAGE if image else _WITHOUT_IMAGE)
        if needed.problem is not None:
            raise needed.error("code needs a sandbox, and this machine has none")
        return SandboxRouter(
            needed.name,
            choose=lambda spec: _WITHOUT_IMAGE if spec.image is None else _WITH_IMAGE,
            make=lambda name: _pool(name, warm),
        )
    if name not in _PROVIDERS:
        return _other_provider(name)
    if (status := find(name)).problem is not None:
        raise status.error(f"sandbox provider {name}")
    return _pool(name, warm)


def _other_provider(name: str) -> SandboxProvider:
    """A provider of another package. Raises a `UserError` that says what to install."""
    others = named_entry_points(_GROUP)
    if name in others:
        provider: SandboxProvider = others[name].load()()
        return provider
    if name in _HOSTED:
        raise missing_package(f"sandbox provider {name}", "sandboxes")
    known = {"auto", "remote", *_PROVIDERS, *_HOSTED, *others}
    raise UserError(f"unknown sandbox provider {name}", did_you_mean(name, sorted(known)))


def _pool(name: str, warm: int | None) -> SandboxProvider:
    if (status := find(name)).problem is not None:
        raise SandboxError(str(status.error(f"sandbox provider {name}")))
    return SandboxPool(local_provider(name), warm)


def local_provider(name: str) -> SandboxProvider:
    """A provider by its name, without a pool."""
    return provider_class(name)()


def install_command(name: str) -> str | None:
    """The command that installs what a provider needs, for this machine's package manager, else Debian's."""
    if (package := provider_class(name).package) is None:
        return None
    command = next((command for program, command in _INSTALLERS.items() if shutil.which(program) is not None), None)
    return f"{command or _INSTALLERS['apt-get']} {package}"


@cache
def _problem(name: str) -> str | None:
    return provider_class(name).problem()
