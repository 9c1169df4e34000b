"""ART: groups of a feed as trajectory groups, for `Backend.train`.

    async with GroupFeed("mcqa", model=f"vllm:{model.inference_base_url}#{model.name}") as feed:
        async for group in feed:
            await backend.train(model, [art_group(group)])
            feed.update()

- Each model call is a `Choice` with the ids and logprobs that were sampled. ART renders the other messages again with
  its tokenizer's chat template.
- Each sequence of a rollout is a history of its own, in which only its own calls are trained.
- Failures are exceptions of the group. Masked members are counted in its metrics and are not in it.
"""

from __future__ import annotations

from typing import Any

from art.trajectories import History, Trajectory, TrajectoryGroup
from openai.types.chat.chat_completion import Choice

from ludus.errors import UserError
from ludus.train.group import TrainingGroup, TrainingMember


def art_group(group: TrainingGroup) -> TrajectoryGroup:
    """The trajectories of a group."""
    return TrajectoryGroup(
        [trajectory_of(member) for member in group.trainable],
        exceptions=[member.failure for member in group.failures if member.failure is not None],
        metadata={"task_id": group.task_id, "group": group.number},
        metrics={"ludus_masked": len(group.members) - len(group.trainable), "ludus_failed": len(group.failures)},
    )


def trajectory_of(member: TrainingMember) -> Trajectory:
    """The trajectory of a member that trains."""
    rollout = member.rollout
    messages, tools = rollout.messages(), rollout.tools() or None
    calls = [call for call in rollout.calls if "prefix" in call]
    turns = [at for at, message in enumerate(messages) if message["role"] == "assistant"]
    turns = turns[len(turns) - len(calls) :]
    if len(turns) != len(calls) or not calls:
        cause = f"rollout {rollout.rollout_id} has {len(calls)} model calls, and other turns in its messages"
        raise UserError(cause, "ART needs one message for each model call")
    histories, first = [], 0
    for sequence in member.rollout.sequences(("main", "compacted")):
        own = range(first, first + len(sequence.policy_versions))
        choices = {turns[number]: _choice(messages[turns[number]], calls[number]) for number in own}
        said = [choices.get(at, message) for at, message in enumerate(messages[: turns[own[-1]] + 1])]
        histories.append(History(messages_and_choices=said, tools=tools))
        first = own.stop
    known = [version for version in member.versions if version is not None]
    return Trajectory(
        messages_and_choices=histories[0].messages_and_choices,
        tools=tools,
        additional_histories=histories[1:],
        reward=float(member.reward or 0.0),
        initial_policy_version=min(known, default=None),
        final_policy_version=max(known, default=None),
        metrics={**member.components},
        metadata={"rollout_id": rollout.rollout_id},
    )


def _choice(message: dict[str, Any], call: dict[str, Any]) -> Choice:
    drawn = zip(call["generated_ids"], call["logprobs"], strict=True)
    content = [
        {"token": f"token_id:{id}", "bytes": [], "logprob": float(logprob), "top_logprobs": []} for id, logprob in drawn
    ]
    return Choice.model_validate(
        {
            "index": 0,
            "finish_reason": "tool_calls" if message.get("tool_calls") else "stop",
            "message": {"content": None, **message},
            "logprobs": {"content": content, "refusal": None},
        }
    )
