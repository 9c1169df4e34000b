"""Sandboxes: one protocol to run what a model wrote, and several providers of it."""

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
    "Program",
    "Sandbox",
    "SandboxError",
    "SandboxLimits",
    "SandboxProvider",
    "SandboxSpec",
]
