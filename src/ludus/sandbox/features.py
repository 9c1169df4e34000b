"""Features of a spec that some providers lack: an environment that needs one is refused at its start."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ludus.sandbox.mounts import Mount, mount_problem
from ludus.sandbox.protocol import SandboxError, SandboxProvider, SandboxSpec


def problem_with(provider: SandboxProvider | type[SandboxProvider], spec: SandboxSpec) -> str | None:
    """Why a provider cannot open sandboxes of a spec, in one line, or None."""
    missing = list(_missing(provider.lacks, spec))
    return f"sandbox provider {provider.name} {'; it '.join(missing)}" if missing else None


def mounts_problem(provider: SandboxProvider, mounts: Sequence[Mount]) -> str | None:
    """Why a provider cannot mount folders, in one line, or None."""
    problem = next(_mounts_missing(provider.lacks, mounts), None)
    return f"sandbox provider {provider.name} {problem}" if problem is not None else None


def require(provider: SandboxProvider, spec: SandboxSpec) -> None:
    """Raise a `SandboxError` if a provider cannot open sandboxes of a spec."""
    if (problem := problem_with(provider, spec)) is not None:
        raise SandboxError(problem)


def _missing(lacks: frozenset[str], spec: SandboxSpec) -> Iterator[str]:
    if "no_image" in lacks and spec.image is None:
        yield "needs an image: set resources.sandbox.image to a folder, a tar archive or an image's name"
    if "image" in lacks and spec.image is not None:
        yield f"takes no image ({spec.image}): use the provider oci"
    if "packages" in lacks and spec.packages:
        yield f"cannot add Python packages ({', '.join(spec.packages)}): an image brings its own"
    if "folders" in lacks and spec.folders:
        yield f"has no folders of its own at the root ({', '.join(f'/{name}' for name in spec.folders)})"
    if "unix_sockets" in lacks and spec.unix_sockets:
        yield "lets programs make no Unix sockets"
    yield from _mounts_missing(lacks, spec.mounts, spec.folders)


def _mounts_missing(lacks: frozenset[str], mounts: Sequence[Mount], folders: Sequence[str] = ()) -> Iterator[str]:
    if mounts and "mounts" in lacks:
        yield f"cannot mount folders of this machine ({mounts[0].source})"
    elif (problem := mount_problem(mounts, folders)) is not None:
        yield problem
