"""The tasks of the package agentdojo as rows: user tasks, alone or each with every injection task of its suite."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache
from itertools import product
from typing import Any

from ludus.errors import UserError, did_you_mean
from ludus_lab.agentdojo.suites import SUITES, VERSION, suite

#: The attack of the rows, unless `data.attack` is set: the one that AgentDojo's authors found strongest.
ATTACK = "important_instructions"

#: User tasks whose own check an empty answer passes. Rows leave them out, unless `data.unchecked` is set.
UNCHECKED = {"banking": ("user_task_5", "user_task_6", "user_task_8", "user_task_9", "user_task_10")}

#: Suite, user task and injection task of the example rows; None stands for a row without an attack.
EXAMPLES = (
    ("workspace", 0, None),
    ("workspace", 18, 3),
    ("travel", 3, None),
    ("travel", 0, 1),
    ("banking", 3, None),
    ("banking", 0, 4),
    ("slack", 2, None),
    ("slack", 1, 3),
)


def example(seed: int) -> Iterator[dict[str, Any]]:
    """Two tasks of each suite, one of them attacked."""
    for name, user_task, injection_task in EXAMPLES:
        if injection_task is None:
            yield row(name, f"user_task_{user_task}")
        else:
            yield row(name, f"user_task_{user_task}", f"injection_task_{injection_task}", ATTACK)


def stream(
    seed: int,
    *,
    suites: str = ",".join(SUITES),
    attack: str = ATTACK,
    victim: str = "local",
    version: str = VERSION,
    unchecked: bool = False,
    shuffle: bool = False,
) -> Iterator[dict[str, Any]]:
    """Rows for all tasks of these suites. `attack: none` gives the user tasks alone.

    `unchecked` adds the user tasks that an empty answer passes. `victim` is the name of a model that AgentDojo knows:
    some attacks address the model by name.
    """
    names = [name.strip() for name in suites.split(",") if name.strip()]
    tasks: list[tuple[str, str, str | None]] = []
    for name in names:
        left_out = () if unchecked else UNCHECKED.get(name, ())
        pairs = _pairs(name, attack, victim, version)
        tasks += [(name, *pair) for pair in pairs if pair[0] not in left_out]
    if shuffle:
        random.Random(seed).shuffle(tasks)
    for name, user_task, injection_task in tasks:
        yield row(name, user_task, injection_task, attack, victim=victim, version=version)


def row(
    name: str,
    user_task: str,
    injection_task: str | None = None,
    attack: str = "none",
    *,
    victim: str = "local",
    version: str = VERSION,
) -> dict[str, Any]:
    """One row: a user task of a suite, and what the attack writes into the suite's state."""
    chosen = suite(name, version)
    from agentdojo.agent_pipeline.agent_pipeline import load_system_message

    task = chosen.user_tasks[user_task]
    injections: dict[str, str] = {}
    stops = False
    if attack != "none":
        attacker = attacker_of(name, attack, victim, version)
        stops = attacker.is_dos_attack
        target = injection_task or next(iter(chosen.injection_tasks))
        injections = attacker.attack(task, chosen.injection_tasks[target])
    prompt = [{"role": "system", "content": load_system_message(None)}, {"role": "user", "content": task.PROMPT}]
    parts = (
        name,
        user_task,
        *([] if injection_task is None else [injection_task]),
        *([] if attack == "none" else [attack]),
    )
    return {
        "task_id": "-".join(parts),
        "responses_create_params": {"input": prompt},
        "suite": name,
        "user_task": user_task,
        "injection_task": None if stops else injection_task,
        "attack": attack,
        "injections": injections,
        "version": version,
    }


@cache
def attacker_of(name: str, attack: str, victim: str = "local", version: str = VERSION) -> Any:
    """An attack of the package on a suite. Raises a `UserError` for an unknown attack or victim."""
    chosen = suite(name, version)
    from agentdojo.agent_pipeline.agent_pipeline import AgentPipeline
    from agentdojo.attacks.attack_registry import ATTACKS, load_attack
    from agentdojo.models import MODEL_NAMES

    known = sorted(set(ATTACKS) - {"manual"})  # which asks a person
    if attack not in known:
        raise UserError(f"data.attack {attack!r:.60} is no attack of agentdojo", did_you_mean(attack, ["none", *known]))
    if not any(model in victim for model in MODEL_NAMES):
        raise UserError(f"data.victim {victim!r:.60} is no model of agentdojo", did_you_mean(victim, MODEL_NAMES))
    target = AgentPipeline([])
    target.name = victim
    return load_attack(attack, chosen, target)


def _pairs(name: str, attack: str, victim: str, version: str) -> Iterator[tuple[str, str | None]]:
    """User tasks with injection tasks. An attack that only wants the task to be dropped needs no injection task."""
    chosen = suite(name, version)
    if attack == "none" or attacker_of(name, attack, victim, version).is_dos_attack:
        yield from ((user_task, None) for user_task in chosen.user_tasks)
    else:
        yield from product(chosen.user_tasks, chosen.injection_tasks)
