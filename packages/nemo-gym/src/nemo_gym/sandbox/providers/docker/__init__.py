"""Sandboxes as containers of Docker."""

from nemo_gym.sandbox.providers.docker.config import DockerCreateConfig
from nemo_gym.sandbox.providers.docker.provider import DockerProvider

__all__ = ["DockerCreateConfig", "DockerProvider"]
