"""Lets pytest import the servers of a checkout by their full names, as with an installed NeMo Gym.

A suite in `resources_servers/NAME/tests` imports `resources_servers.NAME.app`, often before anything else, and pytest
puts at most the folder of the server on the import path.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from ludus_nemo_gym.names import ENVIRONMENTS, KINDS

if TYPE_CHECKING:
    import pytest


def pytest_load_initial_conftests(early_config: pytest.Config, args: list[str]) -> None:
    """Append the checkout in which the tests lie: a `nemo_gym` in it stays behind the installed one."""
    named = [Path(arg.partition("::")[0]) for arg in args if not arg.startswith("-")]
    places = [*(path for path in named if path.exists()), early_config.rootpath, Path.cwd()]
    checkout = _checkout_around(place.resolve() for place in places)
    if checkout is not None and checkout not in sys.path:
        sys.path.append(checkout)


def _checkout_around(places: Iterable[Path]) -> str | None:
    around = (folder for place in places for folder in (place, *place.parents))
    return next(
        (str(folder) for folder in around if any((folder / kind).is_dir() for kind in (*KINDS, ENVIRONMENTS))), None
    )
