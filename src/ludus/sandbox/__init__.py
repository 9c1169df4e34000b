"""Sandboxes: one protocol to run untrusted code, and several providers of it."""

from ludus.sandbox.mounts import Mount
from ludus.sandbox.protocol import (
    HOME,
    ExecResult,
    Program,
    Sandbox,
    SandboxError,
    SandboxLimits,
    SandboxProvider,
    SandboxSpec,
)

__all__ = [
    "HOME",
    "ExecResult",
    "Mount",
    "Program",
    "Sandbox",
    "SandboxError",
    "SandboxLimits",
    "SandboxProvider",
    "SandboxSpec",
]
