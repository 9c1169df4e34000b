"""verl: an agent loop that plays rollouts of an environment with verl's own engine.

verl finds the loop in a file that `actor_rollout_ref.rollout.agent.agent_loop_config_path` names:

    - name: ludus
      _target_: ludus_trainers.verl.LudusAgentLoop
      environment: mcqa

and runs it for rows with `agent_name` "ludus", which `ludus_trainers.verl_data` writes.

- The reward is in the output, so verl calls no reward function.
- A rollout of several sequences is a list of outputs, which verl's v1 trainer takes (the default of 0.9).
- A failed or masked rollout is an empty list. The v1 trainer leaves the member out: no loss, no part in the baseline.
- With `trainer.use_v1=false` verl needs one sequence: other rollouts are replaced, then `NotTrainable` is raised.
"""

from __future__ import annotations

from typing import Any, ClassVar
from weakref import WeakKeyDictionary

from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput

from ludus.collection.collection import Environments
from ludus.model import Model
from ludus.train.policy import GroupPolicy
from ludus.train.rows import with_sampling
from ludus_trainers.player import RolloutPlayer
from ludus_trainers.rows import TrainingRow, carried_row, rows_of
from ludus_trainers.token_engine import EngineCall, GeneratedIds, TokenEngine


class LudusAgentLoop(AgentLoopBase):
    """One rollout. verl makes an instance for each; those of an engine with the same settings share one player.

    `policy` holds fields of `GroupPolicy` such as `deadline` and `replacements`. `settings` are those of the
    environment. `model` replaces verl's engine, for tests.
    """

    _players: ClassVar[WeakKeyDictionary[Any, dict[str, RolloutPlayer]]] = WeakKeyDictionary()

    def __init__(
        self,
        *args: Any,
        environment: Environments = None,
        settings: dict[str, Any] | None = None,
        policy: dict[str, Any] | GroupPolicy | None = None,
        model: Model | None = None,
        **fields: Any,
    ) -> None:
        super().__init__(*args, **fields)
        players = self._players.setdefault(self.server_manager, {})
        key = repr((environment, settings, policy))
        if key not in players:
            rule = policy if isinstance(policy, GroupPolicy) else GroupPolicy(**(policy or {}))
            chosen = dict(settings) if settings else None
            players[key] = RolloutPlayer(environment, policy=rule, model=model or self._model(), settings=chosen)
        self.player = players[key]

    async def run(self, sampling_params: dict[str, Any], **fields: Any) -> Any:
        """Play the row in `extra_info` and return its sequences."""
        row = with_sampling(
            carried_row(fields.get("extra_info"), "extra_info of a row"),
            temperature=sampling_params.get("temperature"),
            top_p=sampling_params.get("top_p"),
            max_tokens=self.rollout_config.response_length,
            engine_extra=sampling_params,
        )
        if not self.config.get("trainer", {}).get("use_v1", True):
            return _output(await self.player.single_row(row))
        member = await self.player.member(row)
        outputs = [_output(row) for row in rows_of(member)] if member is not None else []
        return outputs[0] if len(outputs) == 1 else outputs

    def _model(self) -> TokenEngine:
        manager, limits = self.server_manager, self.rollout_config

        async def generate(call: EngineCall) -> GeneratedIds:
            sampling = {**call.extra, "logprobs": True, "max_tokens": call.sampling.max_tokens}
            sampling |= {"stop": call.sampling.stops} if call.sampling.stops else {}
            made = await manager.generate(call.session, prompt_ids=call.ids, sampling_params=sampling)
            ids, step = list(made.token_ids), made.extra_fields.get("min_global_steps")
            cut = made.stop_reason == "aborted" or len(ids) >= call.sampling.max_tokens
            return GeneratedIds(ids, made.log_probs, version=step, cut=cut)

        config = TokenEngine.Config(
            context=limits.prompt_length + limits.response_length,
            chat_template_kwargs=dict(self.apply_chat_template_kwargs),
            max_output_tokens=limits.response_length,
        )
        return TokenEngine(generate, self.tokenizer, config=config)


def _output(row: TrainingRow) -> AgentLoopOutput:
    extra: dict[str, Any] = {"reward_extra_info": {}}  # verl copies it between the outputs of a rollout
    if row.versions:
        extra |= {"min_global_steps": min(row.versions), "max_global_steps": max(row.versions)}
    return AgentLoopOutput(
        prompt_ids=row.prompt_ids,
        response_ids=row.response_ids,
        response_mask=row.mask,
        response_logprobs=row.logprobs,
        reward_score=row.reward,
        num_turns=1 + sum(now > before for before, now in zip([0, *row.mask], row.mask, strict=False)),
        metrics=AgentLoopMetrics(),
        extra_fields=extra,
    )
