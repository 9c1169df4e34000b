"""Sandboxes as NeMo Gym's servers and agents use them, on Ludus's sandboxes, docker, apptainer or the host."""

from nemo_gym.sandbox._async_sandbox import AsyncSandbox
from nemo_gym.sandbox._sandbox import Sandbox
from nemo_gym.sandbox.compose import AsyncSandboxCompose
from nemo_gym.sandbox.config import resolve_provider_config, resolve_provider_metadata
from nemo_gym.sandbox.providers import (
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
    create_provider,
    get_provider_class,
    list_providers,
    register_provider,
)
from nemo_gym.sandbox.providers.local import LocalProvider
from nemo_gym.sandbox.utils import CPU_CAP_ENV_VARS, cpu_cap_env, rewrite_image

__all__ = [
    "CPU_CAP_ENV_VARS",
    "AsyncSandbox",
    "AsyncSandboxCompose",
    "ConnectableProvider",
    "LocalProvider",
    "Sandbox",
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
    "cpu_cap_env",
    "create_provider",
    "get_provider_class",
    "list_providers",
    "register_provider",
    "resolve_provider_config",
    "resolve_provider_metadata",
    "rewrite_image",
]
