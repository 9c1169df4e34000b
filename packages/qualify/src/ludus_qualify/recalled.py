"""The findings of a recall: every rollout counts once, by run, by policy version and by row of the dataset."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

from ludus.record import Row

#: What can become of a rollout's reward.
FINDINGS = {
    "wrong": "another reward now: a policy could train on the wrong one",
    "newly_masked": "not fit to train on, says the new verifier; it was before",
    "was_masked": "changed, but it was masked: no policy trained on it",
    "drifted": "changed, but tools answered otherwise than recorded: judge it by hand",
    "failed": "the new verifier cannot judge it: it has no reward",
    "new": "it had no reward before",
    "unchanged": "the same reward",
    "fresh": "its receipt is valid: this verifier gave the reward",
}

#: The findings of rollouts whose reward or mask the new verifier changes.
CHANGED = ("wrong", "newly_masked", "was_masked", "drifted")


class PolicyVersion(NamedTuple):
    """Who wrote a rollout: the versions of its model calls, in order, and the name of the model."""

    versions: tuple[str, ...]
    model: str

    @classmethod
    def of(cls, row: Row) -> PolicyVersion:
        """The policy of a record. Calls that were given, because the rollout branches from another, do not count."""
        calls = row.get("model_calls")
        listed = [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []
        versions = (call.get("policy_version") for call in listed if not call.get("given"))
        response = row.get("response")
        model = response.get("model") if isinstance(response, dict) else None
        return cls(tuple(dict.fromkeys(str(version) for version in versions if version is not None)), str(model or ""))

    @property
    def version(self) -> str | None:
        """The version, or several joined for a rollout during which the weights were updated; None if unknown."""
        return ", ".join(self.versions) or None


class Tally:
    """How many rollouts have which finding. `trained_on` were completed, so that a policy could train on them."""

    __slots__ = ("findings", "trained_on")

    def __init__(self) -> None:
        self.findings: Counter[str] = Counter()
        self.trained_on = 0

    def add(self, finding: str, trained_on: bool) -> None:
        """Count one rollout."""
        self.findings[finding] += 1
        self.trained_on += trained_on

    @property
    def changed(self) -> int:
        """How many rollouts the new verifier changes."""
        return sum(self.findings[name] for name in CHANGED)

    def summary(self) -> dict[str, int]:
        """The counts as a JSON object. The findings add up to `rollouts`."""
        counts = {name: self.findings[name] for name in FINDINGS}
        return {"rollouts": self.findings.total(), "trained_on": self.trained_on, **counts}


def finding_of(kind: str, before: Row, after: Row) -> str:
    """The finding for a rollout: what `ludus verify` says of it, told apart by what a trainer did with it."""
    if kind != "changed":
        return kind
    if after.get("replay_drift"):
        return "drifted"
    if before.get("outcome") == "masked":
        return "was_masked"
    return "newly_masked" if after.get("outcome") == "masked" else "wrong"


def by_policy(tallies: dict[PolicyVersion, Tally]) -> Iterator[dict[str, Any]]:
    """A JSON object for each policy, in the order in which they were found."""
    for policy, tally in tallies.items():
        yield {"policy_version": policy.version, "model": policy.model, **tally.summary()}
