"""Games: model and game take turns, the steps give the verdict, and a record can be replayed."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

import forked
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ludus
from ludus import Environment, Failure, Game, Response, Rollout, ScriptedModel, Step, Verdict, tool
from ludus.agents.gymnasium import GymnasiumAgent
from ludus.episode import Episode
from ludus.episode import play as play_episode
from ludus.limits import Limits
from ludus.rescore.rescoring import rescore
from ludus.response import function_call, message, texts_of
from ludus.rollout import Job

ROW: dict[str, Any] = {"responses_create_params": {"input": "Play."}}


class Countdown(Game):
    """Ends after three answers. Pays 0.1 for the first two and 0.5 for the last."""

    async def reset(self, task: Any) -> str:
        self.left = 3
        return f"{self.left} to go."

    async def step(self, task: Any, response: Response) -> Step:
        self.left -= 1
        if self.left == 0:
            return Step("Over.", reward=0.5, terminated=True, info={"last": response.output_text})
        return Step(f"{self.left} to go.", reward=0.1)


class Silent(Game):
    """Gives no observations and never ends."""

    async def step(self, task: Any, response: Response) -> Step:
        return Step(reward=1.0, info={"said": response.output_text})


def play(game: type[Game], *turns: Any, **options: Any) -> Rollout:
    result = ludus.collect(game, model=ScriptedModel(list(turns)), input=[ROW], **options)
    return result.rollouts[0]


def verdict_of(rollout: Rollout) -> Verdict:
    assert rollout.verdict is not None, rollout.error
    return rollout.verdict


def said(rollout: Rollout) -> list[str]:
    assert rollout.response is not None
    return [texts_of(item) for item in rollout.response.output]


def test_model_and_game_take_turns_until_the_game_ends() -> None:
    rollout = play(Countdown, "one", "two", "three", "four")
    assert said(rollout) == ["3 to go.", "one", "2 to go.", "two", "1 to go.", "three"]
    verdict = verdict_of(rollout)
    assert rollout.stop_reason == "terminated"
    assert verdict.turn_rewards == [0.1, 0.1, 0.5]
    assert verdict.reward == pytest.approx(0.7)
    assert verdict.values == {"terminated": True, "truncated": False, "info": {"last": "three"}}
    assert len(rollout.calls) == len(verdict.turn_rewards)


def test_a_step_gets_only_the_latest_answer() -> None:
    assert verdict_of(play(Countdown, "one", "two", "three")).values["info"] == {"last": "three"}


def test_a_game_that_is_not_over_at_the_step_limit_is_truncated_with_the_reward_so_far() -> None:
    rollout = play(Countdown, "one", settings={"agent.max_steps": 2})
    assert rollout.stop_reason == "max_steps"
    assert verdict_of(rollout).reward == pytest.approx(0.2)
    assert verdict_of(rollout).values["truncated"] is True


def test_a_game_may_truncate_itself() -> None:
    class Cut(Game):
        async def step(self, task: Any, response: Response) -> Step:
            return Step(reward=2.0, truncated=True)

    rollout = play(Cut, "go")
    assert (rollout.stop_reason, rollout.reward) == ("truncated", 2.0)
    assert verdict_of(rollout).values == {"terminated": False, "truncated": True, "info": {}}


def test_a_game_without_observations_goes_on_until_the_step_limit() -> None:
    rollout = play(Silent, "a", "b", settings={"agent.max_steps": 4})
    assert (rollout.stop_reason, rollout.reward) == ("max_steps", 4.0)
    assert said(rollout) == ["a", "b", "b", "b"]


def test_an_incomplete_answer_is_a_step_too() -> None:
    rollout = play(Countdown, {"text": "on", "incomplete": "max_output_tokens"}, "two", "three")
    assert verdict_of(rollout).turn_rewards == [0.1, 0.1, 0.5]


def test_reset_and_step_may_be_plain_functions() -> None:
    class Plain(Game):
        def reset(self, task: Any) -> str:  # type: ignore[override]
            return "Hello."

        def step(self, task: Any, response: Response) -> Step:  # type: ignore[override]
            return Step(reward=1.0, terminated=True)

    assert play(Plain, "hi").reward == 1.0


def test_function_calls_that_the_game_leaves_unanswered_get_not_found() -> None:
    class Calls(Game):
        @tool
        async def ring(self, times: int) -> str:
            """Ring a bell."""
            return "ding " * times

        async def step(self, task: Any, response: Response) -> Step:
            if not response.function_calls:
                return Step(reward=1.0, terminated=True)
            call = response.function_calls[0]
            return Step("Heard.", tool_outputs=[(call["call_id"], await self.call(call["name"], call["arguments"]))])

    calls = [{"name": "ring", "arguments": {"times": 2}}, {"name": "shout"}]
    rollout = play(Calls, {"calls": calls}, "done")
    assert rollout.response is not None
    shown = [item.get("output") or texts_of(item) for item in rollout.response.output[2:]]
    assert shown == ["ding ding ", '{"detail":"Not Found"}', "Heard.", "done"]
    assert rollout.reward == 1.0


@pytest.mark.parametrize(
    ("broken", "stage", "kind"),
    [
        ({"reset": lambda self, task: 1 / 0}, "open", "crash"),
        ({"step": lambda self, task, response: 1 / 0}, "tool", "crash"),
        ({"step": lambda self, task, response: "more"}, "tool", "bad_step"),
        ({"step": lambda self, task, response: Step(reward=float("nan"), terminated=True)}, "verify", "bad_verdict"),
        ({"step": lambda self, task, response: time.sleep(60)}, "tool", "timeout"),
        ({"reset": lambda self, task: time.sleep(60)}, "open", "timeout"),
    ],
)
def test_a_game_that_fails_has_no_reward(broken: dict[str, Any], stage: str, kind: str) -> None:
    game = type("Broken", (Game,), {"step": lambda self, task, response: Step(terminated=True), **broken})
    rollout = play(game, "go", settings={f"limits.{stage}": 0.2} if kind == "timeout" else {})
    assert rollout.reward is None
    assert rollout.error is not None
    assert (rollout.error.stage, rollout.error.kind) == (stage, kind)


async def test_a_game_without_a_step_has_no_reward() -> None:
    with pytest.raises(Failure, match="the model never answered") as caught:
        await Countdown().verify(None, Response.of())
    assert caught.value.kind == "not_played"


async def test_a_step_before_the_start_or_after_the_end_of_a_game_is_refused() -> None:
    game = Countdown()
    with pytest.raises(Failure, match="has not begun"):
        await game.advance(None, Response.of())
    await game.begin(None)
    for _ in range(3):
        await game.advance(None, Response.of())
    with pytest.raises(Failure, match="is over"):
        await game.advance(None, Response.of())
    assert await game.begin(None) == "3 to go."
    assert not game.over


def test_the_gymnasium_agent_refuses_resources_that_are_not_a_game(counter: Any, rows: Any) -> None:
    environment = Environment.load(counter)
    environment.agent = GymnasiumAgent()
    rollout = ludus.collect(environment, model=ScriptedModel(["hi"]), input=rows(1)).rollouts[0]
    assert rollout.error is not None
    assert "the gymnasium agent needs a Game as resources, and Counter is not a Game" in rollout.error.cause


async def test_a_recorded_trajectory_is_verified_by_replaying_it() -> None:
    record = Response.of(
        message("one"),
        {"role": "user", "content": "2 to go."},
        message("two"),
        {"role": "user", "content": "1 to go."},
        message("three"),
    )
    verdict = await Countdown().verify(None, record)
    assert verdict.turn_rewards == [0.1, 0.1, 0.5]
    again = await Countdown().verify(None, Response.of(message("one"), message("still one")))
    assert again.turn_rewards == [0.1]
    assert again.values["truncated"] is True


async def test_a_replay_lists_the_turns_where_the_game_differs_from_the_record() -> None:
    record = Response.of(
        {"role": "user", "content": "3 to go."},
        message("one"),
        {"role": "user", "content": "Two left."},
        message("two"),
        {"role": "user", "content": "1 to go."},
        message("three"),
        {"role": "user", "content": "More."},
        message("four"),
    )
    game = Countdown()
    drift = await game.replay(None, record)
    assert drift == [
        (1, "Two left.", "2 to go."),
        (3, "More.", ""),
        (3, "the game went on", "the game is over"),
    ]
    assert [step.reward for step in game.steps] == [0.1, 0.1, 0.5]


class Talker(Game):
    """Gives the observations of the row's script, and remembers the answers that it got."""

    class Task(ludus.Task):
        script: list[Any] = []

    async def reset(self, task: Task) -> str | None:
        self.heard: list[list[Any]] = []
        self.said = list(task.script)
        return self.said.pop(0) if self.said else None

    async def step(self, task: Task, response: Response) -> Step:
        self.heard.append(response.output)
        observation = self.said.pop(0) if self.said else None
        outputs = [(call["call_id"], "done") for call in response.function_calls]
        return Step(observation, reward=len(response.output_text), tool_outputs=outputs)


_ANSWERS = st.lists(
    st.lists(st.sampled_from([message("hm"), message(""), function_call("f", "{}", call_id="c")]), max_size=3),
    min_size=1,
    max_size=5,
)


@settings(max_examples=150, deadline=None)
@given(_ANSWERS, st.lists(st.none() | st.sampled_from(["", "go on", "and now?"]), max_size=6))
def test_a_replayed_game_repeats_its_record(answers: list[Any], script: list[Any]) -> None:
    row = {**ROW, "script": script}
    task, game = Talker.Task.model_validate(row), Talker()
    model = ScriptedModel([{"items": items} for items in answers])
    episode = Episode(Job("a-0", "a", 0, task, row), game, model, Limits())
    agent = GymnasiumAgent(GymnasiumAgent.Config(max_steps=len(answers)))
    rollout = asyncio.run(play_episode(episode, agent))
    assert rollout.response is not None
    again = Talker()
    drift = asyncio.run(again.replay(task, rollout.response, [call["items"] for call in rollout.calls]))
    assert drift == []
    assert again.heard == game.heard == answers
    assert [step.reward for step in again.steps] == verdict_of(rollout).turn_rewards


YAML = "name: dice\nresources: resources.py:Dice\nagent: {type: gymnasium, max_steps: 4}\n"
CODE = '''
import random
from ludus import Game, Step

class Dice(Game):
    """Guess what comes."""

    async def reset(self, task):
        self.chance = random.Random(self.seed)
        return "Guess."

    async def step(self, task, response):
        thrown = self.chance.randint(1, 6)
        hit = str(thrown) in response.output_text
        return Step(SAYS.format(thrown), reward=float(hit), terminated=hit)

SAYS = "It was {}."
'''


@pytest.fixture
def dice(tmp_path: Path) -> Path:
    """The folder of an environment with a game of dice."""
    (tmp_path / "environment.yaml").write_text(YAML + "datasets: [{name: example, path: rows.jsonl}]\n")
    (tmp_path / "resources.py").write_text(CODE)
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps({**ROW, "n": n}) + "\n" for n in range(6)))
    return tmp_path


def test_rescoring_replays_stored_games_from_their_answers_and_seeds(dice: Path) -> None:
    result = ludus.collect(dice, model=ScriptedModel(["1 or 2", "3"]), output=dice / "run", repeats=4)
    assert {rollout.reward for rollout in result} == {0.0, 1.0}
    changes = rescore(dice / "run", dice, output=dice / "again.jsonl")
    assert (changes.counts["unchanged"], changes.drift_count) == (24, 0)
    assert (dice / "again.jsonl").read_bytes() == (dice / "run" / "rollouts.jsonl").read_bytes()


def test_a_game_that_has_changed_is_reported_as_drift(dice: Path) -> None:
    ludus.collect(dice, model=ScriptedModel(["1"]), output=dice / "run")
    changed = dice / "changed"
    changed.mkdir()
    for name in ("environment.yaml", "rows.jsonl", "resources.py"):
        (changed / name).write_text((dice / name).read_text().replace("It was", "There came"))
    changes = rescore(dice / "run", changed, output=dice / "again.jsonl")
    assert changes.counts["unchanged"] == 6
    rows = [json.loads(line) for line in (dice / "again.jsonl").read_text().splitlines()]
    drifted = [row["replay_drift"]["calls"][0] for row in rows if "replay_drift" in row]
    assert drifted
    assert drifted[0]["turn"] == 1
    assert drifted[0]["recorded"].startswith("It was")
    assert drifted[0]["replayed"].startswith("There came")


def test_metrics_hold_the_mean_reward_of_each_turn() -> None:
    metrics = ludus.collect(Countdown, model=ScriptedModel(["x"]), input=[ROW], repeats=3).metrics
    assert metrics["reward"]["by_turn"] == [
        {"mean": pytest.approx(0.1), "count": 3},
        {"mean": pytest.approx(0.1), "count": 3},
        {"mean": 0.5, "count": 3},
    ]
    assert metrics["values"] == {"terminated": 1.0, "truncated": 0.0}
    assert metrics["stop_reasons"] == {"terminated": 3}


def test_metrics_count_the_games_that_reached_each_turn(dice: Path) -> None:
    result = ludus.collect(dice, model=ScriptedModel(["1 2 3"]), repeats=20)
    turns = [len(verdict_of(rollout).turn_rewards) for rollout in result.rollouts]
    counts = [turn["count"] for turn in result.metrics["reward"]["by_turn"]]
    assert counts == [sum(length > turn for length in turns) for turn in range(max(turns))]
    assert len(set(turns)) > 1


def test_metrics_list_at_most_100_turns() -> None:
    rollout = ludus.collect(Silent, model=ScriptedModel(["x"]), input=[ROW], settings={"agent.max_steps": 150})
    assert len(rollout.metrics["reward"]["by_turn"]) == 100
    assert rollout.metrics["reward"]["mean"] == 150.0


def cli(*words: str, typed: str = "", cwd: Path) -> str:
    command = [sys.executable, "-m", "ludus", *words]
    done = forked.run(command, input=typed, capture_output=True, text=True, cwd=cwd, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_ludus_show_prints_the_reward_of_every_turn(dice: Path) -> None:
    ludus.collect(dice, model=ScriptedModel(["7", "1 2 3 4 5 6"]), output=dice / "run", limit=1)
    lines = cli("show", "run", "1", cwd=dice).splitlines()
    rewards = [line for line in lines if line.startswith("reward ")]
    assert rewards == ["reward 0", "reward 1"]
    assert lines[lines.index("reward 1") - 1] == "  1 2 3 4 5 6"
    assert "  turn_rewards: [0.0, 1.0]" in lines


def test_ludus_chat_lets_a_person_play_a_game(dice: Path) -> None:
    lines = cli("chat", ".", typed="/help\nseven\n1 2 3 4 5 6\n", cwd=dice).splitlines()
    assert "You play the model: type your move. /help lists commands." in lines
    assert any(line.startswith("any text") for line in lines)
    assert [line for line in lines if line.startswith("reward ")] == ["reward 0", "reward 1"]
    assert sum(line.startswith("  It was ") for line in lines) == 2
    assert "completed, reward 1" in lines
    assert "  stopped: terminated" in lines


def test_ludus_chat_verifies_an_unfinished_game_on_request(dice: Path) -> None:
    lines = cli("chat", ".", typed="seven\n/verify\n", cwd=dice).splitlines()
    assert "completed, reward 0" in lines
    assert "  truncated: true" in lines


def test_ludus_chat_shows_a_model_playing_a_game(dice: Path) -> None:
    (dice / "script.yaml").write_text('["7", "1 2 3 4 5 6"]')
    lines = cli("chat", ".", "--model", "scripted:script.yaml", cwd=dice).splitlines()
    assert [line for line in lines if line.startswith("reward ")] == ["reward 0", "reward 1"]
    assert lines.count("user") == 4
    assert "completed, reward 1" in lines
