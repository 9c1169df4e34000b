"""The verifiers that judged the rollouts of a run. A reward means something beside another one of the same verifier.

A run has several verifiers if an environment was edited between its start and its resume, or if runs were joined.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from ludus.record import verifier_of

#: A warning names this many verifiers of an environment.
_NAMED = 4


class Verifiers:
    """Counts rollouts by environment and verifier.

    verifiers = Verifiers()
    verifiers.add("mcqa", rollout.receipt)
    verifiers.several()   # {} with one verifier for each environment
    """

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], int] = {}

    def add(self, environment: str, receipt: Any, count: int = 1) -> None:
        """Count a rollout with a receipt; without one nobody knows its verifier."""
        if verifier := verifier_of(receipt):
            key = environment, verifier
            self._counts[key] = self._counts.get(key, 0) + count

    def update(self, other: Verifiers) -> None:
        """Count what another one has counted."""
        for key, count in other._counts.items():
            self._counts[key] = self._counts.get(key, 0) + count

    @property
    def names(self) -> set[str]:
        """The digests of all verifiers."""
        return {verifier for _, verifier in self._counts}

    def several(self) -> dict[str, dict[str, int]]:
        """The environments with more than one verifier: how many rollouts each of them judged, the most first."""
        by_environment: dict[str, Counter[str]] = {}
        for (environment, verifier), count in self._counts.items():
            by_environment.setdefault(environment, Counter())[verifier] = count
        return {name: dict(counts.most_common()) for name, counts in by_environment.items() if len(counts) > 1}


def verifier_warnings(several: Mapping[str, Mapping[str, int]]) -> list[str]:
    """A sentence for each environment with several verifiers (`Verifiers.several`)."""
    sentences = []
    for environment, counts in several.items():
        named = [f"{verifier} ({count:,})" for verifier, count in list(counts.items())[:_NAMED]]
        more = ["..."] if len(counts) > _NAMED else []
        sentences.append(
            f"{len(counts)} verifiers judged rollouts of {environment or 'this run'}: {', '.join(named + more)}. "
            "Score them all with the newest: ludus verify RUN --stale --output NEW. If the environment is a folder of "
            "yours, add --env FOLDER"
        )
    return sentences
