"""Lets pytest import the servers of a checkout by their full names, as with an installed NeMo Gym.

A suite in `resources_servers/NAME/tests` imports `resources_servers.NAME.app`, often before anything else, and pytest
puts at most the folder of the server on the import path.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ludus_nemo_gym.checkouts import checkout_around

if TYPE_CHECKING:
    import pytest


def pytest_load_initial_conftests(early_config: pytest.Config, args: list[str]) -> None:
    """Append the checkout in which the tests lie: a `nemo_gym` in it stays behind the installed one."""
    named = [Path(arg.partition("::")[0]) for arg in args if not arg.startswith("-")]
    places = [*(path for path in named if path.exists()), early_config.rootpath, Path.cwd()]
    checkout = next(filter(None, map(checkout_around, places)), None)
    if checkout is not None and str(checkout) not in sys.path:
        sys.path.append(str(checkout))
