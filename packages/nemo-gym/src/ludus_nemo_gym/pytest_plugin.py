"""Lets pytest import the servers of a checkout by their full names, as with an installed NeMo Gym.

A suite in `resources_servers/NAME/tests` imports `resources_servers.NAME.app`, often before anything else, and that
imports its siblings by bare names. Pytest puts at most the folder of the tests on the import path.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ludus_nemo_gym.checkouts import checkout_around
from ludus_nemo_gym.suites_apart import SuitesApart, server_around

if TYPE_CHECKING:
    import pytest


def pytest_load_initial_conftests(early_config: pytest.Config, args: list[str]) -> None:
    """Append the checkout in which the tests lie: a `nemo_gym` in it stays behind the installed one.

    The folder of the server comes first. Suites of several servers have theirs in turn.
    """
    named = [Path(arg.partition("::")[0]) for arg in args if not arg.startswith("-")]
    places = [path for path in named if path.exists()]
    checkout = next(filter(None, map(checkout_around, [*places, early_config.rootpath, Path.cwd()])), None)
    if checkout is None:
        return
    if str(checkout) not in sys.path:
        sys.path.append(str(checkout))
    around = [server_around(place, checkout) for place in [*places, Path.cwd()]]
    servers = {str(server) for server in around if server is not None}
    if len(servers) == 1:
        sys.path[:0] = servers - set(sys.path)
    else:
        early_config.pluginmanager.register(SuitesApart(checkout))
