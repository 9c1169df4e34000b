"""Which provider a server's settings mean: `sandbox_provider` names a block of the configuration, or holds one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from omegaconf import OmegaConf

#: The key of a block that is no provider.
_METADATA = "default_metadata"


def resolve_provider_config(
    ref: str | Mapping[str, Any], named_configs: Mapping[str, Any] | None = None
) -> dict[str, dict[str, Any]]:
    """The provider as `{NAME: settings}`. `ref` is the name of a block of the configuration, or such a block.

    `named_configs` takes the place of this process's configuration. `ValueError` unless exactly one provider is named.
    """
    name, settings = provider_of(_block(ref, named_configs))
    return {name: settings}


def resolve_provider_metadata(
    ref: str | Mapping[str, Any], named_configs: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """`default_metadata` of the block: what every sandbox of the provider shall carry."""
    return dict(_block(ref, named_configs).get(_METADATA) or {})


def provider_of(block: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The name and the settings of the one provider in a block. `ValueError` if there is not exactly one."""
    plain = _plain(block)
    names = [name for name in plain if name != _METADATA]
    if len(names) != 1:
        raise ValueError(f"a sandbox provider is one mapping {{NAME: settings}}, not: {', '.join(names) or 'nothing'}")
    settings = plain[names[0]]
    if settings is not None and not isinstance(settings, Mapping):
        raise ValueError(f"the settings of the sandbox provider {names[0]} are not a mapping: {settings!r:.100}")
    return str(names[0]), {str(key): value for key, value in (settings or {}).items()}


def _block(ref: str | Mapping[str, Any], named_configs: Mapping[str, Any] | None) -> dict[str, Any]:
    if not isinstance(ref, str):
        return _plain(ref)
    blocks = named_configs if named_configs is not None else get_global_config_dict()
    block = blocks.get(ref)
    if block is None:
        raise ValueError(f"the configuration has no sandbox block {ref!r}: add {ref}: {{PROVIDER: {{...}}}}")
    return _plain(block)


def get_global_config_dict() -> Mapping[str, Any]:
    """This process's configuration. A test may replace it here or in `nemo_gym.global_config`."""
    from nemo_gym import global_config

    return global_config.get_global_config_dict()


def _plain(block: Any) -> dict[str, Any]:
    """A mapping of plain values, also of an OmegaConf node."""
    if OmegaConf.is_config(block):
        block = OmegaConf.to_container(block, resolve=True)
    if not isinstance(block, Mapping):
        raise ValueError(f"a sandbox provider is a mapping {{NAME: settings}}, not {block!r:.100}")
    return dict(block)
