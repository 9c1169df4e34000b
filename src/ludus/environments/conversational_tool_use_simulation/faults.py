"""Labels for what went wrong, and which of them mask the rollout.

A failure of the simulated customer or tools masks the rollout, because the policy did not cause it. A failure of the
policy, or too long a conversation, earns 0 and is trained on.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from ludus import Verdict
from ludus.environments.conversational_tool_use_simulation.judging import Finding
from ludus.environments.conversational_tool_use_simulation.steps import Source

BAD_CALL, BAD_RESULT, NO_VERDICT = (
    "invalid_agent_tool_call",
    "invalid_environment_tool_execution",
    "verification_generation_error",
)

#: Label and reason for each way a conversation can stop before the customer ends it.
_UNFINISHED = {
    "user_failure": ("user_failure", "message_generation_error"),
    BAD_RESULT: ("tool_failure", BAD_RESULT),
    BAD_CALL: ("agent_failure", BAD_CALL),
    "max_steps": ("trajectory_failure", "excessive_length"),
}
_SILENT = ("agent_failure", "message_generation_error")

#: Label and reason for a failure that the judge finds.
_FOUND: dict[Source, tuple[str, str | None]] = {
    "user": ("user_failure", "no_reward_user_message"),
    "environment": ("tool_failure", "no_reward_environment_message"),
    "agent": ("agent_failure", None),
}

_MASKS = {
    "user_failure": "the simulated customer failed",
    "tool_failure": "the simulated tools failed",
    NO_VERDICT: "the judge gave no verdict",
}


def unfinished(reason: str, values: dict[str, Any], *, compat: bool) -> Verdict:
    """The verdict on a conversation that the customer did not end.

    With `compat`, a cut or empty answer of the policy masks the rollout too.
    """
    label, cause = _UNFINISHED.get(reason, _SILENT)
    silent = compat and reason not in _UNFINISHED
    return verdict(0.0, values, [label], [cause], mask="an answer was cut off or empty" if silent else None)


def judged(findings: list[Finding], values: dict[str, Any]) -> Verdict:
    """The verdict on a conversation from the judge's findings."""
    failed = list(dict.fromkeys(finding.source for finding in findings if not finding.success))
    labels = [_FOUND[source][0] for source in failed]
    reasons = [reason for source in failed if (reason := _FOUND[source][1]) is not None]
    results = [asdict(finding) for finding in findings]
    return verdict(float(not failed), {**values, "judge_results": results, "judge_skipped": False}, labels, reasons)


def verdict(
    reward: float, values: dict[str, Any], labels: list[str], reasons: list[str], *, mask: str | None = None
) -> Verdict:
    """A verdict with its labels, and a mask if one of the labels requires it."""
    mask = mask or next((_MASKS[label] for label in labels if label in _MASKS), None)
    counted: dict[str, Any] = {f"{who}_failure": f"{who}_failure" in labels for who in ("user", "tool", "agent")}
    counted |= {"judge_skipped": True, "failure_labels": labels, "invalid_reasons": reasons}
    return Verdict(reward, mask=mask, **{**counted, **values})
