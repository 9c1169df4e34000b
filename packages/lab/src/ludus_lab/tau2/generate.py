"""The tasks of tau2-bench as rows."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ludus.errors import UserError, did_you_mean
from ludus_lab.tau2.domains import DOMAINS, module, original

INSTRUCTION = (
    "You work at a service desk and talk with one customer. Follow the policy below. In each answer, either write a "
    "message to the customer or call tools, not both. What the customer wants may be against the policy."
)

#: The example rows. Their right conversations change a database, or the user's phone.
EXAMPLES = {
    "airline": ("8", "11", "15"),
    "retail": ("0", "2", "5"),
    "telecom": (
        "[mobile_data_issue]user_abroad_roaming_disabled_off[PERSONA:Hard]",
        "[service_issue]overdue_bill_suspension[PERSONA:Easy]",
        "[service_issue]lock_sim_card_pin[PERSONA:Hard]",
    ),
}


def example(seed: int) -> Iterator[dict[str, Any]]:
    """Three tasks of each domain, the domains in turn."""
    splits = {"airline": "base", "retail": "base", "telecom": "small"}
    tasks = {domain: {task.id: task for task in _tasks(domain, split)} for domain, split in splits.items()}
    for names in zip(*EXAMPLES.values(), strict=True):
        for domain, name in zip(EXAMPLES, names, strict=True):
            yield row(domain, tasks[domain][name])


def stream(
    seed: int, *, domain: str = "airline", split: str = "base", shuffle: bool = False
) -> Iterator[dict[str, Any]]:
    """Rows for all tasks of a domain and split: `base`, `train`, `test`, and in telecom `small` and `full`."""
    if domain not in DOMAINS:
        raise UserError(f"data.domain {domain!r:.40} is not a domain of tau2", did_you_mean(domain, DOMAINS))
    tasks = _tasks(domain, split)
    if shuffle:
        random.Random(seed).shuffle(tasks)
    for task in tasks:
        yield row(domain, task)


def row(domain: str, task: Any) -> dict[str, Any]:
    """One row: the policy as the prompt, and the task's scenario, initial state and criteria."""
    system = f"{INSTRUCTION}\n\n<policy>\n{original(domain).policy}\n</policy>"
    fields = task.model_dump(mode="json", include={"user_scenario", "initial_state", "evaluation_criteria"})
    return {
        "task_id": f"{domain}-{task.id}",
        "responses_create_params": {"input": [{"role": "system", "content": system}]},
        "domain": domain,
        **fields,
    }


def _tasks(domain: str, split: str) -> list[Any]:
    splits = module(domain).get_tasks_split()
    if split not in splits:
        raise UserError(f"data.split {split!r:.40} is not a split of {domain}", did_you_mean(split, splits))
    if (domain, split) == ("telecom", "small"):  # a file of its own: the other one takes seconds to read
        tasks: list[Any] = module(domain).load_tasks(
            Path(module(domain).TELECOM_TASK_SET_PATH).with_name("tasks_small.json")
        )
    else:
        tasks = module(domain).get_tasks(split)
    return tasks
