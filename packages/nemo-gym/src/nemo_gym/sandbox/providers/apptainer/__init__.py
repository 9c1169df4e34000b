"""Sandboxes as instances of Apptainer."""

from nemo_gym.sandbox.providers.apptainer.provider import ApptainerProvider

__all__ = ["ApptainerProvider"]
