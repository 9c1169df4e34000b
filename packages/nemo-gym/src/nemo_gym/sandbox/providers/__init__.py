"""Providers of sandboxes: their contract, their data and their names."""

from nemo_gym.sandbox.providers.base import (
    ConnectableProvider,
    SandboxCreateError,
    SandboxEndpoint,
    SandboxExecResult,
    SandboxHandle,
    SandboxProvider,
    SandboxResources,
    SandboxSpec,
    SandboxStatus,
    SupportsSandboxEndpoint,
    SupportsSandboxNetwork,
    SupportsSandboxPause,
)
from nemo_gym.sandbox.providers.registry import (
    create_provider,
    get_provider_class,
    list_providers,
    register_provider,
)

__all__ = [
    "ConnectableProvider",
    "SandboxCreateError",
    "SandboxEndpoint",
    "SandboxExecResult",
    "SandboxHandle",
    "SandboxProvider",
    "SandboxResources",
    "SandboxSpec",
    "SandboxStatus",
    "SupportsSandboxEndpoint",
    "SupportsSandboxNetwork",
    "SupportsSandboxPause",
    "create_provider",
    "get_provider_class",
    "list_providers",
    "register_provider",
]
