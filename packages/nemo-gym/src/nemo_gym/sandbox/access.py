"""How an agent reaches the sandbox that a resources server opened for its session."""

from nemo_gym._sandbox_access import DirectSandboxConnection, SandboxAccess

__all__ = ["DirectSandboxConnection", "SandboxAccess"]
