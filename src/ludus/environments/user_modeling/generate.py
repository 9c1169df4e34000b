"""An endless stream of scenarios: the same seed gives the same rows."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from contextlib import closing
from typing import Any

from ludus import UserError
from ludus.environments.user_modeling import library_scenarios, retail_scenarios, travel_scenarios
from ludus.environments.user_modeling.desk import Desk, today_of
from ludus.environments.user_modeling.library import Library
from ludus.environments.user_modeling.retail import Retail
from ludus.environments.user_modeling.travel import Travel

#: How many worlds each desk has. Scenarios share the worlds.
WORLDS = 100

DESKS: dict[str, type[Desk]] = {"retail": Retail, "travel": Travel, "library": Library}
KINDS = {"retail": retail_scenarios.KINDS, "travel": travel_scenarios.KINDS, "library": library_scenarios.KINDS}


def stream(seed: int, domains: list[str] | None = None) -> Iterator[dict[str, Any]]:
    """Endless rows: the domains in turn, and for each domain its kinds of scenario in turn."""
    chosen = domains or list(DESKS)
    if unknown := set(chosen) - set(DESKS):
        raise UserError(f"there is no domain {min(unknown)}", f"Known: {', '.join(DESKS)}")
    for number in itertools.count():
        domain = chosen[number % len(chosen)]
        kinds = KINDS[domain]
        yield _row(f"{seed}/{number}", number, domain, kinds[number // len(chosen) % len(kinds)])


def _row(seed: str, number: int, domain: str, write: Any) -> dict[str, Any]:
    rng = random.Random(seed)
    while True:  # a world may lack a record for this scenario
        world = rng.randrange(WORLDS)
        with closing(DESKS[domain].template(world)) as database:
            desk = DESKS[domain](database)
        with closing(desk.db):
            scenario = write(rng, desk, today_of(world))
        if scenario is not None:
            break
    policy = DESKS[domain].policy.replace("{today}", today_of(world).isoformat())
    return {
        "id": f"{domain}-{write.__name__}-{number}",
        "domain": domain,
        "world": world,
        **scenario.fields(rng),
        "responses_create_params": {"input": [{"role": "system", "content": policy}]},
    }
