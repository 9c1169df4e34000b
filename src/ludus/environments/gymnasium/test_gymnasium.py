"""Classes with Gymnasium's interface: turns, seeds, deadlines, and that a row cannot name code."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any, ClassVar

import pytest

import ludus
from ludus import Environment, Rollout, ScriptedModel, UserError
from ludus.environments.gymnasium import spaces
from ludus.environments.gymnasium.generate import stream
from ludus.environments.gymnasium.loading import rules_of
from ludus.rescore.rescoring import rescore
from ludus.response import texts_of

ROW: dict[str, Any] = {"responses_create_params": {"input": "Begin."}, "seed": 5}


class Corridor:
    """Walk to the right end of a corridor: say left or right."""

    log: ClassVar[list[str]] = []

    def __init__(self, length: int = 3, slow: float = 0.0) -> None:
        self.length, self.slow = length, slow
        self.log.append("made")

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[str, dict[str, Any]]:
        self.at = 0
        return f"You are at 0, and the seed is {seed}.", {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self.log.append("step")
        time.sleep(self.slow)
        self.log.append("stepped")
        self.at += {"left": -1, "right": 1}.get(action, 0)
        done = self.at >= self.length
        return f"You are at {self.at}.", 1.0 if done else -0.1, done, self.at < -1, {"at": self.at, "who": object}

    def close(self) -> None:
        self.log.append("closed")


class Broken(Corridor):
    def step(self, action: str) -> Any:
        return 1 / 0 if action == "raise" else ("", 0.0, True, {})


@pytest.fixture(autouse=True)
def _fresh_log() -> None:
    Corridor.log.clear()


def environment(kind: type = Corridor, **settings: Any) -> Environment:
    """The environment for a class of this module, under the module name that pytest gave it."""
    loaded = Environment.load(f"gymnasium:{kind.__module__}:{kind.__name__}")
    loaded.configure({f"resources.{key}": value for key, value in settings.items()})
    return loaded


def play(*turns: Any, row: dict[str, Any] = ROW, of: Environment | None = None, **options: Any) -> Rollout:
    return ludus.collect(of or environment(), model=ScriptedModel(list(turns)), input=[row], **options).rollouts[0]


def said(rollout: Rollout) -> list[str]:
    assert rollout.response is not None
    return [texts_of(item) for item in rollout.response.output]


def test_a_users_class_is_played_with_rules_from_its_docstring() -> None:
    rollout = play("right", "<action>right</action>", "I go \\boxed{right}")
    assert said(rollout)[0] == (
        "You play Corridor.\n\nWalk to the right end of a corridor: say left or right.\n\n"
        "Your action is a text. Write it as <action>TEXT</action>.\n\nYou are at 0, and the seed is 5."
    )
    assert said(rollout)[2::2] == ["You are at 1.", "You are at 2."]
    assert rollout.verdict is not None
    assert rollout.verdict.turn_rewards == [-0.1, -0.1, 1.0]
    assert rollout.reward == pytest.approx(0.8)
    info = {"at": 3, "who": "<class 'object'>"}
    assert rollout.verdict.values == {"terminated": True, "truncated": False, "info": info, "invalid_actions": 0}
    assert rollout.stop_reason == "terminated"


def test_an_environment_may_truncate_the_game() -> None:
    rollout = play("left")
    assert rollout.stop_reason == "truncated"
    assert rollout.reward == pytest.approx(-0.2)


def test_make_arguments_and_rules_can_be_set() -> None:
    rollout = play("right", of=environment(make={"length": 1}, rules="Go right."))
    assert (rollout.reward, len(rollout.calls)) == (1.0, 1)
    assert said(rollout)[0].startswith("You play Corridor.\n\nGo right.\n\nYour action")
    assert said(play("right", of=environment(rules="")))[0].startswith("You play Corridor.\n\nYour action")


def test_the_seed_comes_from_the_row_or_else_from_the_rollout() -> None:
    rollout = play("right", row={"responses_create_params": {"input": "Begin."}})
    assert said(rollout)[0].endswith(f"the seed is {rollout.job.seed}.")
    assert said(play("right"))[0].endswith("the seed is 5.")


def test_an_answer_without_an_action_gets_a_reminder_and_is_counted() -> None:
    rollout = play("", " ", "right", "<action> </action>", "right", "right")
    assert rollout.verdict is not None
    assert rollout.verdict.turn_rewards == [0.0, 0.0, -0.1, 0.0, -0.1, 1.0]
    assert rollout.verdict.values["invalid_actions"] == 3
    assert said(rollout)[2] == (
        "No legal action was found in your answer.\nYour action is a text. Write it as <action>TEXT</action>."
    )


def test_too_many_answers_without_an_action_end_the_game() -> None:
    rollout = play("right", "", "", "", "right")
    assert (rollout.stop_reason, rollout.reward) == ("truncated", -0.1)
    assert rollout.verdict is not None
    assert rollout.verdict.values["info"] == {"forfeit": True}
    costly = play("", of=environment(reminders=0, forfeit=-5.0))
    assert (costly.reward, len(costly.calls)) == (-5.0, 1)


def test_every_environment_is_closed_also_after_an_error() -> None:
    play("right")
    play("raise", of=environment(Broken))
    with pytest.raises(UserError):
        play("x", of=environment(make={"width": 3}))
    assert Corridor.log.count("made") == Corridor.log.count("closed") == 4  # two rollouts, and a check before each run


@pytest.mark.parametrize(
    ("action", "kind", "says"), [("raise", "crash", "ZeroDivisionError"), ("four", "bad_game", "step must return 5")]
)
def test_an_environment_error_fails_the_rollout_without_a_reward(action: str, kind: str, says: str) -> None:
    rollout = play(action, of=environment(Broken))
    assert rollout.error is not None
    assert (rollout.error.stage, rollout.error.kind, rollout.reward) == ("tool", kind, None)
    assert says in rollout.error.cause


def test_a_step_past_its_deadline_is_a_timeout_and_close_waits_for_it() -> None:
    rollout = play("right", of=environment(make={"slow": 1.5}), settings={"limits.tool": 0.05})
    assert rollout.error is not None
    assert (rollout.error.stage, rollout.error.kind) == ("tool", "timeout")
    assert Corridor.log[-3:] == ["step", "stepped", "closed"]


def test_rollouts_play_concurrently_in_a_bounded_number_of_threads() -> None:
    before = set(threading.enumerate())
    result = ludus.collect(
        environment(make={"slow": 0.01, "length": 2}), model=ScriptedModel(["right"]), input=[ROW], repeats=20
    )
    assert [rollout.reward for rollout in result.rollouts] == [pytest.approx(0.9)] * 20
    assert len(set(threading.enumerate()) - before) <= 64


def test_a_class_can_be_named_by_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = "class Lamp:\n    def reset(self, *, seed=None): return 'off', {}\n"
    (tmp_path / "lamp.py").write_text(code + "    def step(self, action): return 'on', 2.0, True, False, {}\n")
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "run"
    result = ludus.collect("gymnasium:lamp.py:Lamp", model=ScriptedModel(["press"]), output=run)
    assert result.metrics["reward"]["mean"] == 2.0
    assert rescore(run, "gymnasium:lamp.py:Lamp").counts == {"unchanged": 8}
    with pytest.raises(UserError, match="--env gymnasium:ARGUMENT"):  # a row cannot name code
        rescore(run)


@pytest.mark.parametrize("name", ["os:system", "lamp.py:Lamp", "package:Maze-v0", "../x", "/etc/passwd", "a:b:c"])
def test_a_row_cannot_name_code(name: str) -> None:
    row = {**ROW, "agent_ref": {"name": f"gymnasium:{name}"}}
    with pytest.raises(UserError, match="a row may not name"):
        ludus.collect(model=ScriptedModel(["x"]), input=[row])


@pytest.mark.parametrize("name", ["Blackjack-v1", "ALE/Pong-v5", "Taxi-v4"])
def test_a_row_may_name_an_id(name: str) -> None:
    assert Environment.named(f"gymnasium:{name}").name == f"gymnasium:{name}"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("no_such_module:Maze", "cannot import no_such_module"),
        (f"{Corridor.__module__}:Corridoor", "has no Corridoor. Did you mean Corridor?"),
    ],
)
def test_a_missing_module_or_class_is_a_user_error(name: str, says: str) -> None:
    with pytest.raises(UserError) as caught:
        ludus.collect(f"gymnasium:{name}", model=ScriptedModel(["x"]), input=[ROW])
    assert says in str(caught.value)


def test_an_id_without_the_library_gives_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spaces, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"gymnasium is not installed. Install it with: pip install .*\[gymnasium\]'"):
        ludus.collect("gymnasium:Blackjack-v1", model=ScriptedModel(["x"]), input=[ROW])
    assert play("right").error is None


@pytest.mark.parametrize("seed", [-1, "7", 1.5])
def test_a_row_whose_seed_is_not_a_nonnegative_integer_is_refused(seed: Any) -> None:
    with pytest.raises(UserError, match="seed"):
        play("right", row={**ROW, "seed": seed})


def test_generated_rows_are_distinct_and_the_same_for_the_same_seed() -> None:
    def first(seed: int, count: int = 200) -> list[int]:
        return [row["seed"] for row, _ in zip(stream(seed), range(count), strict=False)]

    assert first(1) == first(1) != first(2)
    assert len(set(first(1))) == 200
    assert next(stream(0, instruction="Move."))["responses_create_params"]["input"][0]["content"] == "Move."


def test_the_example_rows_are_the_first_generated_rows_of_seed_0() -> None:
    lines = Environment.load("gymnasium").dataset().read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in lines] == [row for row, _ in zip(stream(0), lines, strict=False)]


def test_the_rules_are_the_players_sections_of_the_docstring() -> None:
    class Described:
        """A game.

        ## Description
        Go on.<a href="x">1</a>

         ## Action Space
        - 0: left

        ## Version History
        * v1
        """

    assert rules_of(Described()) == "Description:\nGo on.1\n\nAction Space:\n- 0: left"
    assert rules_of(Corridor()) == "Walk to the right end of a corridor: say left or right."
    assert rules_of(object.__new__(type("Bare", (), {}))) == ""
