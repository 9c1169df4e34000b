"""The formats by name. A new format is a class in a file of its family, and a line here.

A package adds its own in the entry point group `ludus.formats`.
"""

from __future__ import annotations

from ludus.errors import UserError, did_you_mean
from ludus.runtime.installed import named_entry_points
from ludus_data.export.atif import Atif
from ludus_data.export.chat import NemoCustomizer, NemoRL, OpenAI, Sft
from ludus_data.export.format import Format
from ludus_data.export.groups import Grpo
from ludus_data.export.preferences import Dpo, Kto, NemoPreference, RewardModel
from ludus_data.export.sheet import Sheet
from ludus_data.export.tables import HuggingFace, Verl

_ALL: tuple[type[Format], ...] = (
    Sft,
    Dpo,
    Kto,
    RewardModel,
    Grpo,
    Verl,
    OpenAI,
    NemoRL,
    NemoPreference,
    NemoCustomizer,
    Atif,
    HuggingFace,
    Sheet,
)
FORMATS: dict[str, type[Format]] = {kind.name: kind for kind in _ALL}


def format_named(name: str) -> type[Format]:
    """The format of a name; an unknown name is an error that lists the known ones."""
    if name in FORMATS:
        return FORMATS[name]
    others = named_entry_points("ludus.formats")
    if name not in others:
        raise UserError(f"unknown format {name!r:.40}", did_you_mean(name, [*FORMATS, *others]))
    kind: type[Format] = others[name].load()
    return kind
