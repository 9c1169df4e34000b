"""A recorded rollout as exports and filters see it: a thin view of its row."""

from __future__ import annotations

from typing import Any

from ludus.outcome import UNREWARDED
from ludus.record import Row, task_row, verifier_of
from ludus.response import Item
from ludus.tokens import versions_of


class Sample:
    """One rollout of a file. `reward` is None if it failed."""

    __slots__ = ("environment", "outcome", "reward", "rollout_id", "row", "task_id")

    def __init__(self, row: Row) -> None:
        self.row = row
        self.rollout_id: str = row["rollout_id"]
        self.task_id: str = row["task_id"]
        self.outcome: str = row["outcome"]
        self.reward: float | None = row.get("reward") if self.outcome not in UNREWARDED else None
        reference = row.get("agent_ref")
        name = reference.get("name") if isinstance(reference, dict) else None
        self.environment: str = name if isinstance(name, str) else ""  #: empty if the row does not say

    @property
    def scored(self) -> float:
        """The reward of a rollout that has one."""
        if self.reward is None:
            raise ValueError(f"rollout {self.rollout_id} failed and has no reward")
        return self.reward

    @property
    def repeat(self) -> int:
        """Which repeat of its task this is; 0 for a number that fits no table."""
        repeat: int = self.row["repeat"]
        return repeat if abs(repeat) < 2**63 else 0

    @property
    def receipt(self) -> str:
        """The receipt of the verdict; empty if there is none."""
        receipt = self.row.get("receipt")
        return receipt if isinstance(receipt, str) else ""

    @property
    def verifier(self) -> str:
        """The digest of the verifier that judged the rollout; empty if nobody knows it."""
        return verifier_of(self.row.get("receipt"))

    @property
    def group(self) -> str:
        """What the rollouts of its group share: environment, task and verifier."""
        return "/".join(filter(None, (self.environment, self.task_id, self.verifier)))

    @property
    def stop_reason(self) -> str:
        """Why the agent stopped; empty if the row does not say."""
        return str(self.row.get("stop_reason") or "")

    @property
    def prompt(self) -> list[Item] | None:
        """The items that the model was given; None if the row does not hold them."""
        prompt = self._request.get("input")
        if isinstance(prompt, str):
            return [{"role": "user", "content": prompt}]
        return prompt if isinstance(prompt, list) else None

    @property
    def instructions(self) -> Any:
        """The instructions of the request."""
        return self._request.get("instructions")

    @property
    def response(self) -> dict[str, Any]:
        """The response; empty if there is none."""
        return self.row.get("response") or {}

    @property
    def output(self) -> list[Item]:
        """The items of the rollout: what the model wrote, and what tools and users answered."""
        output = self.response.get("output")
        return output if isinstance(output, list) else []

    @property
    def tools(self) -> Any:
        """The tools that the model was offered at its first call."""
        return self.response.get("tools") or ()

    @property
    def calls(self) -> list[dict[str, Any]]:
        """The records of the model calls."""
        return self.row.get("model_calls") or []

    @property
    def policy_versions(self) -> list[str]:
        """The policy versions that wrote this rollout, each once, in order; empty if the model reports no tokens."""
        versions = []
        for call in self.calls:
            for version in versions_of(call):
                if version is not None and str(version) not in versions:
                    versions.append(str(version))
        return versions

    @property
    def turn_rewards(self) -> list[float]:
        """The reward of each model call, if the verifier gave them."""
        rewards = self.row.get("turn_rewards")
        return rewards if isinstance(rewards, list) and all(type(reward) is float for reward in rewards) else []

    def own_reward(self, thread: str) -> float | None:
        """The reward of a thread that does not get the rollout's; None for other threads."""
        reward = (self.row.get("thread_rewards") or {}).get(thread)
        return None if reward is None else float(reward)

    @property
    def task(self) -> Row:
        """The task's own row: the prompt, and what its verifier needs."""
        return task_row(self.row, ours=True)

    @property
    def length(self) -> int:
        """How many characters the model wrote: texts, reasoning and the arguments of calls."""
        return sum(map(_written, self.output))

    @property
    def _request(self) -> dict[str, Any]:
        request = self.row.get("responses_create_params")
        return request if isinstance(request, dict) else {}

    def origin(self) -> dict[str, Any]:
        """The fields of the rollout in every exported row: with them it can be traced back and judged again."""
        get = self.row.get
        receipt = get("receipt")
        return {
            "rollout_id": self.rollout_id,
            "task_id": self.task_id,
            "environment": self.environment,
            "outcome": self.outcome,
            "reward": self.reward,
            "stop_reason": str(get("stop_reason") or ""),
            "receipt": receipt if isinstance(receipt, str) else "",
            "policy_versions": self.policy_versions,
        }


def _written(item: Item) -> int:
    if not isinstance(item, dict):
        return 0
    kind = item.get("type")
    if kind == "function_call":
        arguments = item.get("arguments")
        return len(arguments) if isinstance(arguments, str) else 0
    if kind == "reasoning":
        return _texts(item.get("content")) or _texts(item.get("summary"))
    if kind in ("message", None) and item.get("role", "assistant") == "assistant":
        return _texts(item.get("content"))
    return 0


def _texts(content: Any) -> int:
    if isinstance(content, str):
        return len(content)
    if not isinstance(content, list):
        return 0
    count = 0
    for part in content:
        if isinstance(part, dict) and isinstance(text := part.get("text"), str):
            count += len(text)
    return count
