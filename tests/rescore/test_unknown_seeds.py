"""A record without the seed of its rollout is scored only if the session starts as it did when it was recorded."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ludus
from ludus import Game, Resources, Response, ScriptedModel, Step, tool
from ludus.rescore.rescoring import rescore
from ludus.response import function_call, function_call_output, message, texts_of

HIT, STAND = "<action>hit</action>", "<action>stand</action>"
DECK = ["10", "6", "9", "8", "3"]


def own_record(folder: Path, **fields: Any) -> dict[str, Any]:
    row = {"responses_create_params": {"input": [{"role": "user", "content": "Deal."}]}, **fields}
    ludus.collect("blackjack", model=ScriptedModel([HIT, STAND]), input=[row], output=folder, seed=5)
    found: dict[str, Any] = json.loads((folder / "rollouts.jsonl").read_text())
    return found


def from_elsewhere(record: dict[str, Any]) -> dict[str, Any]:
    """The record as NeMo Gym writes it: the game's opening ends the input, and nothing says the seed."""
    params, output = record["responses_create_params"], record["response"]["output"]
    return {
        "responses_create_params": {**params, "input": [*params["input"], output[0]]},
        "response": {**record["response"], "output": output[1:]},
        "reward": record["reward"],
        **({"deck": record["deck"]} if "deck" in record else {}),
    }


def scored(folder: Path, row: dict[str, Any], environment: Any = "blackjack") -> dict[str, Any]:
    (folder / "rows.jsonl").write_text(json.dumps(row) + "\n")
    rescore(folder / "rows.jsonl", environment, output=folder / "again.jsonl")
    written = [path for path in (folder / "again.jsonl", folder / "again_failures.jsonl") if path.exists()]
    (line,) = [line for path in written for line in path.read_text().splitlines()]
    found: dict[str, Any] = json.loads(line)
    return found


def is_drift(found: dict[str, Any], words: str) -> bool:
    has_failed = found["outcome"] == "failed" and "reward" not in found
    return has_failed and found["kind"] == "drift" and words in found["cause"]


def test_a_hand_that_was_dealt_elsewhere_is_not_scored_with_another_hand(tmp_path: Path) -> None:
    found = scored(tmp_path, from_elsewhere(own_record(tmp_path)))
    assert is_drift(found, "the record does not have the seed")


def test_a_hand_that_was_dealt_elsewhere_from_the_rows_own_deck_is_scored(tmp_path: Path) -> None:
    record = own_record(tmp_path, deck=DECK)
    found = scored(tmp_path, from_elsewhere(record))
    assert (found["outcome"], found["reward"]) == ("completed", record["reward"])


def test_cards_that_were_drawn_elsewhere_after_the_deck_are_not_drawn_again(tmp_path: Path) -> None:
    found = scored(tmp_path, from_elsewhere(own_record(tmp_path, deck=DECK[:4])))
    assert is_drift(found, "")
    unseen = {"responses_create_params": {"input": "Deal."}, "deck": ["10", "9", "2", "3"], "response": STAND}
    assert is_drift(scored(tmp_path, unseen), "the record does not have the seed")  # the dealer draws


def test_a_record_without_its_opening_and_without_its_seed_is_not_scored(tmp_path: Path) -> None:
    prompt = {"responses_create_params": {"input": "Deal."}, "response": STAND}
    assert is_drift(scored(tmp_path, prompt), "the record does not have the seed")
    stacked = scored(tmp_path, {**prompt, "deck": ["10", "9", "10", "7"]})
    assert stacked["reward"] == 1.0


def test_our_own_record_is_scored_with_its_seed(tmp_path: Path) -> None:
    record = own_record(tmp_path)
    assert scored(tmp_path, record)["reward"] == record["reward"]
    del record["rollout_seed"]
    assert is_drift(scored(tmp_path, record), "the game began with 'Your hand: [")


def test_a_game_that_begins_differently_now_is_not_scored_even_with_its_seed(tmp_path: Path) -> None:
    record = own_record(tmp_path)
    opening = record["response"]["output"][0]
    opening["content"] = texts_of(opening).replace("Your hand", "Hand")
    assert is_drift(scored(tmp_path, record), "the game began with 'Hand: [")


class Secret(Resources):
    """Holds a number that is drawn with the seed, and that a tool tells."""

    async def open(self, task: Any) -> None:
        self.number = random.Random(self.seed).randrange(10**9)

    @tool
    async def peek(self) -> int:
        """Tell the number."""
        return self.number

    async def verify(self, task: Any, response: Response) -> float:
        return float(str(self.number) in response.output_text)


class Constant(Secret):
    """Holds the same number for every seed, although it reads the seed."""

    async def open(self, task: Any) -> None:
        self.number = 7 + 0 * self.seed


def peeked(told: str) -> dict[str, Any]:
    output = [function_call("peek", "{}", call_id="1"), function_call_output("1", told), message(f"It is {told}.")]
    return {"responses_create_params": {"input": "What is it?"}, "response": Response.of(*output).data}


def test_a_session_that_was_drawn_elsewhere_is_not_scored_with_another_draw(tmp_path: Path) -> None:
    assert is_drift(scored(tmp_path, peeked("123"), Secret), "peek returned '123' then, and returns ")
    unshown = {"responses_create_params": {"input": "What is it?"}, "response": "It is 3."}
    assert is_drift(scored(tmp_path, unshown, Secret), "the record does not have the seed")


def test_a_session_that_starts_alike_for_every_seed_is_scored(tmp_path: Path) -> None:
    assert scored(tmp_path, peeked("7"), Constant)["reward"] == 1.0


class Chooser(Game):
    """Shows a number of a few, drawn with the seed, and pays it."""

    async def reset(self, task: Any) -> str:
        self.number = random.Random(self.seed).randrange(task.many)
        return f"Number {self.number}"

    async def step(self, task: Any, response: Response) -> Step:
        return Step(reward=float(self.number), terminated=True)


@settings(max_examples=60, deadline=None)
@given(many=st.integers(1, 4), shown=st.integers(0, 3), inside=st.booleans())
def test_a_reward_is_given_only_for_the_start_that_was_recorded(
    tmp_path_factory: pytest.TempPathFactory, many: int, shown: int, inside: bool
) -> None:
    opening = {"type": "message", "role": "user", "content": f"Number {shown}"}
    prompt = [{"role": "user", "content": "Choose."}]
    params = {"input": prompt if inside else [*prompt, opening]}
    output = [opening, message("Yes.")] if inside else [message("Yes.")]
    row = {"responses_create_params": params, "many": many, "response": Response.of(*output).data}
    found = scored(tmp_path_factory.mktemp("run"), row, Chooser)
    assert found.get("reward", shown) == shown
    assert ("reward" in found) != is_drift(found, "")
