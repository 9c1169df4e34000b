"""Commands on the host itself."""

from nemo_gym.sandbox.providers.local.provider import LocalProvider

__all__ = ["LocalProvider"]
