"""TRL trains on our groups: every token, mask, logprob and reward arrives in the trainer's own tensors."""

from __future__ import annotations

import importlib.util
import math
import os
from pathlib import Path
from typing import Any

import pytest
from ludus_transformers.trl import TrlRollouts
from ludus_transformers.trl_worker import TrlWorker
from training import Judged, policy, questions
from waiting import until

from ludus import Response, tool
from ludus.errors import UserError
from ludus.model import Request
from ludus.models.scripted import ScriptedModel
from ludus.response import function_call, message
from ludus.tokens import Tokens
from ludus.train.policy import GroupPolicy

os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
if importlib.util.find_spec("trl") is None:
    pytest.skip("needs trl: pip install 'ludus-transformers[train]'", allow_module_level=True)

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


class Vowels(Judged):
    """The reward is the number of vowels."""

    async def verify(self, task: Any, response: Response) -> float:
        return float(sum(letter in "aeiou" for letter in response.output_text))


class Trained:
    """A short training run that keeps the batches of the trainer."""

    def __init__(
        self, rollouts: TrlRollouts, folder: Path, steps: int = 2, *, close: bool = True, **settings: Any
    ) -> None:
        from tiny_transformers import llama, tokenizer
        from trl import GRPOConfig, GRPOTrainer

        batches: list[dict[str, Any]] = []

        class Watched(GRPOTrainer):  # type: ignore[misc]
            def _generate_and_score_completions(self, inputs: Any) -> Any:
                batches.append(super()._generate_and_score_completions(inputs))
                return batches[-1]

        chosen: dict[str, Any] = {"num_generations": 4, "per_device_train_batch_size": 8, **settings}
        arguments = GRPOConfig(
            output_dir=str(folder),
            max_completion_length=8,
            max_steps=steps,
            report_to=[],
            save_strategy="no",
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            disable_tqdm=True,
            logging_steps=1,
            **chosen,
        )
        self.weights, self.tokenizer, self.batches = llama(), tokenizer(), batches
        if "beta" in settings:  # the trainer loads the start again, to compare with it
            self.weights.save_pretrained(folder / "start")
            self.weights.config._name_or_path = str(folder / "start")
        self.trainer = Watched(
            self.weights,
            reward_funcs=rollouts.reward,
            rollout_func=rollouts,
            train_dataset=rollouts.dataset(),
            args=arguments,
            processing_class=self.tokenizer,
        )
        try:
            self.trainer.train()
        finally:
            if close:
                rollouts.close()
        self.logs = [log for log in self.trainer.state.log_history if "reward" in log]


def rows(count: int) -> list[dict[str, Any]]:
    return [{"responses_create_params": {"input": f"question {n}", "temperature": 0.1}} for n in range(count)]


def check_logprobs(batch: dict[str, Any], temperature: float) -> None:
    """The logprobs of a batch are those of the start's weights."""
    from tiny_transformers import llama, torch

    ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
    attention = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)
    with torch.no_grad():
        positions = (attention.cumsum(-1) - 1).clamp(min=0)
        logits = llama()(ids, attention_mask=attention, position_ids=positions).logits / temperature
    width = batch["completion_ids"].shape[1]
    scores = logits[:, -width - 1 : -1].log_softmax(-1).gather(2, batch["completion_ids"][..., None])[..., 0]
    mask = (batch["completion_mask"] * batch["tool_mask"]).bool()
    assert torch.allclose(scores[mask], batch["sampling_per_token_logps"][mask], atol=1e-3)


def test_the_live_weights_train_with_finite_loss_and_the_logprobs_of_the_trainer(tmp_path: Path) -> None:
    from tiny_transformers import torch

    rollouts = TrlRollouts(Vowels, input=rows(4))
    trained = Trained(rollouts, tmp_path, learning_rate=1e-2, temperature=0.7)
    assert all(math.isfinite(log["loss"]) and log["grad_norm"] > 0 for log in trained.logs)
    assert rollouts.counts == {"trained": 16}
    batch = trained.batches[0]
    check_logprobs(batch, temperature=0.7)
    later = trained.batches[1]["sampling_per_token_logps"]
    assert not torch.allclose(later[:, :1], batch["sampling_per_token_logps"][:, :1]), "the second step has new weights"


def test_failed_and_masked_members_have_no_loss_and_do_not_move_the_baseline(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    said = ["1", "crash", "mask 9", "0"]
    rollouts = TrlRollouts(
        Judged,
        input=questions(2),
        model=policy(lambda question, repeat: said[repeat]),
        policy=GroupPolicy(replacements=0),
    )
    trained = Trained(rollouts, tmp_path, steps=1)
    (batch,) = trained.batches
    written = (batch["completion_mask"] * batch["tool_mask"]).sum(dim=1).tolist()
    for start in (0, 4):
        members = sorted(zip(batch["advantages"].tolist()[start : start + 4], written[start : start + 4], strict=True))
        assert members == [
            (pytest.approx(-0.707, abs=1e-3), 1),
            (0.0, 0),
            (0.0, 0),
            (pytest.approx(0.707, abs=1e-3), 1),
        ]
    assert trained.logs[0]["reward"] == pytest.approx(0.5)
    assert rollouts.counts == {"trained": 4, "masked": 2, "missing": 2, "failed": 2}
    assert "returned None" not in caplog.text, "they are counted, and TRL prints no page about them"


def test_a_step_in_which_every_rollout_fails_leaves_the_weights_as_they_are(tmp_path: Path) -> None:
    from tiny_transformers import llama, torch

    rollouts = TrlRollouts(
        Judged, input=questions(2), model=policy(lambda q, repeat: "crash"), policy=GroupPolicy(replacements=0)
    )
    trained = Trained(rollouts, tmp_path, steps=1, learning_rate=0.1, weight_decay=0.0)
    same = zip(llama().parameters(), trained.weights.parameters(), strict=True)
    assert all(torch.equal(before, after) for before, after in same)
    assert rollouts.counts["empty_steps"] == 1


def test_a_penalty_for_leaving_the_start_trains_on_no_token_of_a_step_in_which_every_rollout_fails(
    tmp_path: Path,
) -> None:
    answers = iter(range(10**6))
    model = policy(lambda q, repeat: str(repeat) if next(answers) < 8 else "crash")
    rollouts = TrlRollouts(Judged, input=questions(2), model=model, policy=GroupPolicy(replacements=0))
    trained = Trained(rollouts, tmp_path, steps=3, beta=0.5, optim="sgd", learning_rate=0.5)
    assert trained.logs[0]["grad_norm"] > 0
    assert [log["grad_norm"] for log in trained.logs[1:]] == [0.0, 0.0]
    assert rollouts.counts["empty_steps"] == 2


def test_a_second_trainer_plays_with_its_own_weights(tmp_path: Path) -> None:
    rollouts = TrlRollouts(Vowels, input=rows(2))
    Trained(rollouts, tmp_path / "first", steps=1, learning_rate=1.0, close=False)
    second = Trained(rollouts, tmp_path / "second", steps=1)
    check_logprobs(second.batches[0], temperature=1.0)


def test_training_stops_with_the_cause_if_every_rollout_fails_again_and_again(tmp_path: Path) -> None:
    rollouts = TrlRollouts(
        Judged, input=questions(2), model=policy(lambda q, repeat: "crash"), policy=GroupPolicy(replacements=0)
    )
    with pytest.raises(
        UserError, match=r"all 8 rollouts of a step failed. The last: .*verify.*crash.* the last 2 steps"
    ):
        Trained(rollouts, tmp_path, steps=5)
    assert (rollouts.counts["empty_steps"], rollouts.counts["failed"]) == (3, 24)


class Tooled(Judged):
    """One tool."""

    @tool
    async def look(self) -> str:
        """Look."""
        return "seen"


def two_turns(request: Request) -> Response:
    """A call with the ids 11, 12; the tool's output as 21, 22, 23; an answer with the ids 31, 32."""
    repeat = int(str(request.session).rpartition("-")[2])
    if not request.turn:
        call = function_call("look", {}, call_id="c")
        return Response.of(call, model="m", tokens=Tokens([1, 2], [11, 12], [-0.1, -0.2]))
    tokens = Tokens([1, 2, 11, 12, 21, 22, 23], [31, 32], [-0.3, -0.4])
    return Response.of(message(str(repeat)), model="m", tokens=tokens)


def test_the_outputs_of_tools_are_context_and_all_turns_train(tmp_path: Path) -> None:
    rollouts = TrlRollouts(Tooled, input=questions(2), model=ScriptedModel(two_turns))
    trained = Trained(rollouts, tmp_path, steps=1)
    (batch,) = trained.batches
    assert batch["prompt_ids"].tolist() == [[1, 2]] * 8
    assert batch["completion_ids"].tolist() == [[11, 12, 21, 22, 23, 31, 32]] * 8
    assert batch["tool_mask"].tolist() == [[1, 1, 0, 0, 0, 1, 1]] * 8
    assert batch["sampling_per_token_logps"][0].tolist() == pytest.approx([-0.1, -0.2, 0, 0, 0, -0.3, -0.4])
    assert math.isfinite(trained.logs[0]["loss"])


def several(request: Request) -> Response:
    found = two_turns(request)
    if request.turn:
        assert found.tokens is not None
        found.tokens.prompt_ids = [1, 2, 99, 98]
    return found


def test_rollouts_of_several_sequences_are_an_error_that_names_a_way_out(tmp_path: Path) -> None:
    rollouts = TrlRollouts(Tooled, input=questions(2), model=ScriptedModel(several))
    with pytest.raises(UserError, match="several token sequences.*TrlWorker"):
        Trained(rollouts, tmp_path, steps=1)


def test_sampling_that_the_policy_does_not_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="top_k=5"):
        Trained(TrlRollouts(Vowels, input=rows(2)), tmp_path, top_k=5)


def test_the_worker_of_the_asynchronous_trainer_gives_every_sequence_with_its_advantage() -> None:
    worker = TrlWorker(
        Tooled, input=questions(3), model=ScriptedModel(several), policy=GroupPolicy(size=2), unread=4, epochs=None
    )
    worker.update_model_version(3)
    worker.start()
    try:
        samples = [worker.rollout_buffer.get(timeout=60) for _ in range(24)]
        worker.check_health(60)
        worker.update_model_version(4)
        while samples[-1].model_version == 3:
            samples.append(worker.rollout_buffer.get(timeout=60))
    finally:
        worker.stop()
    assert {sample.model_version for sample in samples} == {3, 4}
    for first, second in zip(samples[:24:2], samples[1:24:2], strict=True):
        assert first.input_ids.tolist() == [1, 2, 11, 12]
        assert first.completion_mask.tolist() == [0, 0, 1, 1]
        assert second.input_ids.tolist() == [1, 2, 99, 98, 31, 32]
        assert second.completion_mask.tolist() == [0, 0, 0, 0, 1, 1]
        assert second.old_log_probs.tolist() == pytest.approx([0, 0, 0, 0, -0.3, -0.4])
        assert (first.group_id, first.advantage) == (second.group_id, second.advantage)
        assert abs(first.advantage) == pytest.approx(0.707, abs=1e-3)
    assert worker.metrics_queue.get_nowait()["ludus/completed"] >= 2


def test_the_worker_stops_generating_while_samples_are_unread() -> None:
    asked = 0

    def answers(question: str, repeat: int) -> str:
        nonlocal asked
        asked += 1
        return str(repeat)

    chosen = GroupPolicy(size=2)
    worker = TrlWorker(Judged, input=questions(3), model=policy(answers), policy=chosen, unread=4, concurrency=2)
    worker.start()
    try:
        for taken in range(1, 40):
            worker.rollout_buffer.get(timeout=60)
            assert asked <= taken + 4 + 2 + 4, "the buffer, the group that filled it, and two groups in the feed"
    finally:
        worker.stop()


def test_the_worker_reports_the_cause_of_a_dead_policy() -> None:
    dead = ScriptedModel([{"error": {"kind": "refused", "cause": "nobody listens"}}])
    worker = TrlWorker(Judged, input=questions(9), model=dead)
    worker.start()
    try:
        until(lambda: worker._error is not None)
        with pytest.raises(UserError, match="nobody listens"):
            worker.check_health(60)
    finally:
        worker.stop()


def test_a_worker_is_started_once() -> None:
    worker = TrlWorker(Judged, input=questions(2), model=policy(lambda q, repeat: str(repeat)))
    worker.start()
    worker.stop()
    with pytest.raises(UserError, match="can be started once"):
        worker.start()
