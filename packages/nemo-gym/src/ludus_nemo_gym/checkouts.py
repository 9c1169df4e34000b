"""Where a checkout of servers is: the folder that holds `resources_servers` or another kind of servers."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ludus_nemo_gym.names import ENVIRONMENTS, KINDS


def first_checkout(places: Iterable[Path]) -> Path | None:
    """The first of the folders that is a checkout."""
    return next((place for place in places if any((place / kind).is_dir() for kind in (*KINDS, ENVIRONMENTS))), None)


def checkout_around(place: Path) -> Path | None:
    """The nearest checkout that a file or folder lies in, or that the folder is."""
    here = place.absolute()
    return first_checkout((here, *here.parents))
