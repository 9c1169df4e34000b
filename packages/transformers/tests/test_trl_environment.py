"""TRL's `environment_factory` over one of our environments."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from ludus_transformers.trl_environment import TrlEnvironments

from ludus import Resources
from ludus.errors import UserError

os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"


def said(text: str) -> list[dict[str, Any]]:
    return [{"role": "assistant", "content": text}]


def test_tools_run_in_a_session_of_their_own_and_rewards_are_the_verifiers(counter: type[Resources], rows: Any) -> None:
    made = TrlEnvironments(counter, input=rows(2, expected_count=3))
    try:
        factory = made.factory()
        one, other = factory(), factory()
        for turn in range(2):  # the instances are used again
            for each, name in zip((one, other), made._rows, strict=True):
                each.reset(task_id=name)
            assert "success" in asyncio.run(one.increment_counter(count=3 - turn))
            assert "success" in asyncio.run(other.increment_counter(count=1))
            rewards = made.reward(completions=[said("done"), said("done")], environments=[one, other])
            assert rewards == [float(turn == 0), 0.0]
    finally:
        made.close()


class Broken(Resources):
    """Its verifier always fails."""

    async def verify(self, task: Any, response: Any) -> float:
        raise RuntimeError("the judge is dead")


def test_a_verifier_that_fails_gives_no_reward(rows: Any) -> None:
    made = TrlEnvironments(Broken, input=rows(1))
    try:
        one = made.factory()()
        one.reset(task_id=next(iter(made._rows)))
        assert made.reward(completions=[said("done")], environments=[one]) == [None]
    finally:
        made.close()


def test_a_verifier_that_fails_again_and_again_stops_the_training(rows: Any) -> None:
    made = TrlEnvironments(Broken, input=rows(1))
    try:
        one = made.factory()()
        for step in range(3):
            one.reset(task_id=next(iter(made._rows)))
            if step < 2:
                made.reward(completions=[said("done")], environments=[one])
        with pytest.raises(UserError, match="the judge is dead"):
            made.reward(completions=[said("done")], environments=[one])
    finally:
        made.close()


def test_close_closes_the_sessions_in_flight_and_may_be_called_twice(rows: Any) -> None:
    closed: list[int] = []

    class Open(Resources):
        async def verify(self, task: Any, response: Any) -> float:
            return 1.0

        async def close(self) -> None:
            closed.append(1)

    made = TrlEnvironments(Open, input=rows(2))
    factory = made.factory()
    for name in made._rows:
        factory().reset(task_id=name)
    with pytest.raises(UserError, match="unknown task"):
        factory().reset(task_id="nobody's")
    made.close()
    made.close()
    assert closed == [1, 1]


def test_an_environment_that_judges_groups_is_refused(rows: Any) -> None:
    class Together(Resources):
        async def verify_group(self, task: Any, responses: Any) -> list[float]:
            return [0.0 for _ in responses]

    with pytest.raises(UserError, match=r"verify_group.*Use TrlRollouts"):
        TrlEnvironments(Together, input=rows(1))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_trainer_takes_a_step_with_the_tools_of_the_environment(
    counter: type[Resources], rows: Any, tmp_path: Path
) -> None:
    trl = pytest.importorskip("trl", reason="needs trl: pip install 'ludus-transformers[train]'")
    from tiny_transformers import llama, tokenizer
    from trl.chat_template_utils import qwen2_5_chat_template

    made, words = TrlEnvironments(counter, input=rows(2)), tokenizer()
    words.chat_template = qwen2_5_chat_template
    arguments = trl.GRPOConfig(
        output_dir=str(tmp_path),
        per_device_train_batch_size=4,
        num_generations=2,
        max_completion_length=8,
        max_steps=1,
        report_to=[],
        save_strategy="no",
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        logging_steps=1,
        disable_tqdm=True,
    )
    trainer = trl.GRPOTrainer(
        llama(),
        reward_funcs=made.reward,
        environment_factory=made.factory(),
        train_dataset=made.dataset(),
        args=arguments,
        processing_class=words,
    )
    try:
        assert [tool.__name__ for tool in trainer.tools] == ["increment_counter"]
        trainer.train()
    finally:
        made.close()
    assert any("reward" in log for log in trainer.state.log_history)
