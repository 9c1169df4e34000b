"""`ludus credit`: what each turn was worth, its cost, its cache, and what becomes of continuations that fail."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import forked
import pytest
from branches import ASK, Guessing, lines
from corridor import DOORS, Corridor, careful, mistaken, planted, recorded_walks, with_tokens
from hypothesis import given
from hypothesis import strategies as st
from ludus_credit.crediting import Crediting, credit
from ludus_credit.model import recorded_model
from ludus_credit.values import known, value_of, worths
from serving import COUNTER
from waiting import CEILING

import ludus
from ludus import Request, ScriptedModel, UserError
from ludus.collection.collection import Collection
from ludus.collection.options import Options
from ludus.errors import Failure
from ludus.store.files import Files
from ludus.thread import Thread
from ludus.tokens import TokenLog, Tokens
from ludus.train.stored import stored_groups

CALLS = DOORS + 2  # the doors, one turn of waiting, and the last message


class Counted:
    """A policy that counts its calls."""

    def __init__(self, policy: Any = careful) -> None:
        self.calls, self._policy = 0, policy

    def __call__(self, request: Request) -> Any:
        self.calls += 1
        return self._policy(request)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def failing(request: Request) -> Any:
    """A policy that fails in the third turn."""
    if request.turn == 2:
        raise Failure("http_500", "the model is down")
    return careful(request)


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """Two recorded walks. Tests write elsewhere."""
    return recorded_walks(tmp_path_factory.mktemp("walks") / "run", 2)


def test_a_turn_is_worth_the_value_after_it_minus_the_value_before_it(run, tmp_path):
    summary = credit(run, Corridor, model=ScriptedModel(careful), branches=3, output=tmp_path)
    assert summary["continuations"] == {
        "needed": 2 * CALLS * 3,
        "cached": 0,
        "completed": 2 * CALLS * 3,
        "masked": 0,
        "failed": 0,
    }
    for before, row in zip(lines(run / "rollouts.jsonl"), lines(tmp_path / "rollouts.jsonl"), strict=True):
        found = row.pop("turn_credit")
        rewards, values = row.pop("turn_rewards"), found["values"]
        assert row == before
        assert len(values) == CALLS + 1
        assert values[-1] == row["reward"] == 0.0
        assert rewards == [after - before for before, after in pairwise(values)]
        assert found["continuations"] == [3] * CALLS
        assert all(low <= reward <= high for reward, (low, high) in zip(rewards, found["intervals"], strict=True))
        mistake, _ = planted(int(row["responses_create_params"]["input"].split()[1]))
        assert values[mistake + 1 :] == [0.0] * (CALLS - mistake)


def test_credit_changes_nothing_in_the_run(run, tmp_path):
    before = contents(run)
    credit(run, Corridor, model=ScriptedModel(careful), branches=1, output=tmp_path)
    assert contents(run) == before


def test_a_second_call_plays_nothing_and_writes_the_same(run, tmp_path):
    policy = Counted()
    first = credit(run, Corridor, model=ScriptedModel(policy), branches=2, output=tmp_path)
    written, calls = (tmp_path / "rollouts.jsonl").read_bytes(), policy.calls
    assert first["cost"]["spent"]["model_calls"] == calls
    second = credit(run, Corridor, model=ScriptedModel(policy), branches=2, output=tmp_path)
    assert policy.calls == calls
    assert second["cost"]["spent"]["model_calls"] == second["cost"]["spent"]["continuations"] == 0
    assert second["continuations"]["cached"] == second["continuations"]["needed"]
    assert (tmp_path / "rollouts.jsonl").read_bytes() == written


def test_an_interrupted_call_plays_only_what_is_missing(run, tmp_path):
    options: dict[str, Any] = {"branches": 2, "output": tmp_path}
    credit(run, Corridor, model=ScriptedModel(careful), **options)
    written = (tmp_path / "rollouts.jsonl").read_bytes()
    (journal,) = (tmp_path / "continuations").glob("*/rollouts.jsonl")
    kept = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(kept[:-3]) + kept[-3][:40])  # as a kill in the middle of a write leaves it
    summary = credit(run, Corridor, model=ScriptedModel(careful), **options)
    assert summary["continuations"]["cached"] == len(kept) - 3
    assert summary["cost"]["spent"]["continuations"] == 3
    assert (tmp_path / "rollouts.jsonl").read_bytes() == written


def test_rollouts_that_were_added_to_the_run_are_all_that_is_played(tmp_path):
    run = recorded_walks(tmp_path / "run", 2)
    first = credit(run, Corridor, model=ScriptedModel(careful), branches=2)
    recorded_walks(run, 2, repeats=2, resume=True)
    again = Crediting(run, Corridor, model=ScriptedModel(careful), branches=2).plan()
    assert again["rollouts"]["to_credit"] == 4
    assert again["continuations"]["cached"] == first["continuations"]["needed"]


def test_another_model_or_another_number_of_branches_has_continuations_of_its_own(run, tmp_path):
    credit(run, Corridor, model=ScriptedModel(careful), branches=1, output=tmp_path)
    other = ScriptedModel(careful, name="another")
    assert Crediting(run, Corridor, model=other, branches=1, output=tmp_path).plan()["continuations"]["cached"] == 0
    more = Crediting(run, Corridor, model=ScriptedModel(careful), branches=2, output=tmp_path)
    assert more.plan()["continuations"]["cached"] == 0


def test_failed_continuations_are_reported_and_never_counted_as_zero(tmp_path):
    run = recorded_walks(tmp_path / "run", 1)
    summary = credit(run, Corridor, model=ScriptedModel(failing), branches=2)
    (missing,) = summary["first_without_credit"]
    assert summary["rollouts"] == {
        "credited": 0,
        "without_credit": 1,
        "masked": 0,
        "failed": 0,
        "without_calls": 0,
    }
    assert missing["why"] == "no continuation from turn 1 completed: the model is down"
    assert (run / "credit" / "rollouts.jsonl").read_bytes() == b""
    counts = summary["continuations"]
    assert counts["completed"] + counts["failed"] == counts["needed"] == 2 * CALLS
    assert set(summary["failed_attempts"]) == {"model/http_500"}


def test_a_value_is_the_mean_of_the_continuations_that_completed(tmp_path):
    def sometimes(request: Request) -> Any:
        if request.turn == 1 and str(request.session).endswith("-0"):
            raise Failure("http_500", "the model is down")
        return careful(request)

    run = recorded_walks(tmp_path / "run", 1)
    summary = credit(run, Corridor, model=ScriptedModel(sometimes), branches=3)
    (row,) = lines(run / "credit" / "rollouts.jsonl")
    assert row["turn_credit"]["continuations"] == [2, 2, *[3] * (CALLS - 2)]
    assert summary["continuations"]["failed"] == 2


def test_masked_rollouts_are_left_out_and_counted(tmp_path):
    run = recorded_walks(tmp_path / "run", 2)
    rows = lines(run / "rollouts.jsonl")
    rows[0] |= {"outcome": "masked", "mask": "unfit"}
    (run / "rollouts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    summary = credit(run, Corridor, model=ScriptedModel(careful), branches=1)
    assert (summary["rollouts"]["credited"], summary["rollouts"]["masked"]) == (1, 1)


def test_the_cost_is_estimated_before_and_counted_after(run, tmp_path):
    planned = Crediting(run, Corridor, model=with_tokens(careful), branches=2, output=tmp_path).plan()
    calls = 2 * 2 * sum(range(1, CALLS + 1))
    assert planned["estimate"]["continuations"] == 2 * 2 * CALLS
    assert planned["estimate"]["model_calls"] == planned["estimate"]["output_tokens"] == calls
    assert not list(tmp_path.iterdir())
    policy = Counted()
    spent = credit(run, Corridor, model=with_tokens(policy), branches=2, output=tmp_path)["cost"]["spent"]
    assert spent["model_calls"] == spent["output_tokens"] == policy.calls
    assert spent["input_tokens"] > policy.calls


def test_the_turns_of_a_game_are_credited(tmp_path):
    def guess(request: Request) -> str:
        return str(request.turn)

    def at_once(request: Request) -> str:
        return str(request.seed % 4)

    run = tmp_path / "run"
    ludus.collect(Guessing, model=ScriptedModel(guess), input=[{**ASK, "n": n} for n in range(4)], output=run)
    summary = credit(run, Guessing, model=ScriptedModel(at_once), branches=2)
    assert summary["rollouts"]["credited"] == 4
    for row in lines(run / "credit" / "rollouts.jsonl"):
        assert sum(row["turn_rewards"]) == pytest.approx(row["reward"] - row["turn_credit"]["values"][0])


def test_a_trainer_gets_the_credit_of_each_turn_on_its_tokens(tmp_path):
    def mixed(request: Request) -> Any:
        return (mistaken if str(request.session).endswith("-0") else careful)(request)

    run = recorded_walks(tmp_path / "run", 1, mixed, repeats=2)
    credit(run, Corridor, model=ScriptedModel(careful), branches=4)
    (group,) = stored_groups(run / "credit")
    assert group.has_signal
    assert [each.rollout.verdict.turn_rewards for each in group.members] == [m.turn_rewards for m in group.members]
    bad, good = group.turn_advantages(discount=0.0)
    mistake, _ = planted(0)
    assert min(bad) == bad[mistake] < 0
    for index in range(len(good)):
        first, second = (member.turn_rewards[index] for member in group.members)
        assert bad[index] == pytest.approx((first - second) / 2)
    member = group.members[0]
    spread = [value for values in member.per_token(bad) for value in values if value]
    assert spread == [value for value in bad if value]


def test_other_threads_of_a_credited_rollout_keep_their_calls_and_their_reward(tmp_path):
    run = recorded_walks(tmp_path / "run", 1, mistaken, repeats=2)
    rows = lines(run / "rollouts.jsonl")
    call = {"items": 1, "at": 0, **TokenLog().add(Tokens([1], [2], [-0.5]))}
    for row, own in zip(rows, ({}, {"agent-1": rows[1]["reward"] + 1.0}), strict=True):
        row["threads"] = [Thread("agent-1", "agent", calls=[call]).to_row()]
        row["thread_rewards"] = own
    (run / "rollouts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    credit(run, Corridor, model=ScriptedModel(careful), branches=2)
    (group,) = stored_groups(run / "credit")
    for member, advantages, last in zip(group.members, group.turn_advantages(discount=0.0), (0.0, 1.0), strict=True):
        assert len(member.turn_rewards) == len(member.rollout.calls) == CALLS, "of the main thread alone"
        assert len(advantages) == CALLS + 1
        assert advantages[-1] == pytest.approx(last)


def test_calls_that_were_given_to_a_branch_have_no_tokens_and_no_credit(tmp_path):
    def some_wrong(request: Request) -> Any:
        found = careful(request)
        wrong = request.turn == 3 and str(request.session).endswith("-0")
        return {"call": "enter", "arguments": {"door": "no such door"}} if wrong else found

    first = recorded_walks(tmp_path / "first", 1, careful)
    options: dict[str, Any] = {"branch": first, "turn": 2, "repeats": 2, "tokens": True, "output": tmp_path / "run"}
    ludus.collect(Corridor, model=with_tokens(some_wrong), **options)
    summary = credit(tmp_path / "run", Corridor, model=ScriptedModel(careful), branches=2)
    assert summary["turns"] == 2 * (DOORS + 1 - 2)
    (group,) = stored_groups(tmp_path / "run" / "credit")
    bad, good = (member.turn_rewards for member in group.members)
    assert bad[:2] == good[:2] == [0.0, 0.0]
    assert bad[3] == min(bad) < 0
    expected = [(first - second) / 2 for first, second in zip(bad[2:], good[2:], strict=True)]
    assert group.turn_advantages(discount=0.0)[0] == pytest.approx(expected)


def test_rollouts_with_the_same_receipt_and_seed_share_their_continuations(tmp_path):
    first = recorded_walks(tmp_path / "first", 1)
    options: dict[str, Any] = {"branch": first, "turn": 7, "repeats": 2, "output": tmp_path / "run"}
    ludus.collect(Corridor, model=with_tokens(mistaken), **options)
    summary = credit(tmp_path / "run", Corridor, model=ScriptedModel(careful), branches=2)
    assert summary["rollouts"]["credited"] == 2
    assert summary["continuations"]["needed"] == summary["cost"]["spent"]["continuations"] == 2


def test_a_stale_reward_is_refused(tmp_path):
    run = recorded_walks(tmp_path / "run", 1)
    (row,) = lines(run / "rollouts.jsonl")
    (run / "rollouts.jsonl").write_text(json.dumps({**row, "receipt": "old.old.old"}) + "\n")
    with pytest.raises(UserError, match="its reward is stale"):
        credit(run, Corridor, model=ScriptedModel(careful))


def test_rewards_that_depend_on_the_group_are_refused(tmp_path):
    class Ranked(Corridor):
        async def verify_group(self, task: Any, responses: Any) -> list[float]:
            return [1.0 for _ in responses]

    with pytest.raises(UserError, match="judges the rollouts of a task together"):
        credit(recorded_walks(tmp_path / "run", 1), Ranked, model=ScriptedModel(careful))


def test_an_output_with_other_rollouts_is_refused(run):
    with pytest.raises(UserError, match="already holds a collection"):
        Crediting(run, Corridor, model=ScriptedModel(careful), output=run)


def test_a_run_whose_model_cannot_be_opened_again_asks_for_one(run, tmp_path):
    with pytest.raises(UserError, match="--model"):
        Crediting(run, Corridor, output=tmp_path)


@given(
    st.lists(st.lists(st.floats(0, 1), min_size=1, max_size=6), min_size=1, max_size=6),
    st.floats(0, 1),
)
def test_the_turns_are_together_worth_the_reward_minus_the_value_of_the_start(rewards, reward):
    values = [value_of(each, (0.0, 1.0)) for each in rewards]
    found = worths([*(each for each in values if each is not None), known(reward)])
    assert len(found) == len(rewards)
    assert sum(each.mean for each in found) == pytest.approx(reward - (values[0].mean if values[0] else 0.0))
    for each, before in zip(found, rewards, strict=True):
        assert each.count == len(before)
        if each.interval is not None:
            assert each.interval[0] <= each.mean <= each.interval[1]
        if len(before) == 1:
            assert each.interval is None


PLAYER = """
def respond(request):
    if request.turn < 2:
        return {"call": "increment_counter", "arguments": {"count": request.seed % 2}}
    return "done"
"""


@pytest.mark.slow
def test_the_command_continues_with_the_runs_own_model(tmp_path):
    (tmp_path / "player.py").write_text(PLAYER)
    rows = ({**ASK, "initial_count": 0, "expected_count": 2, "n": n} for n in range(3))
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def command(*words: str) -> subprocess.CompletedProcess[str]:
        whole = [sys.executable, "-m", "ludus", *words]
        return forked.run(whole, cwd=tmp_path, capture_output=True, text=True, timeout=CEILING, check=False)

    collected = command(
        "collect", COUNTER, "--model", "scripted:player:respond", "--input", "rows.jsonl", "--output", "run"
    )
    assert collected.returncode == 0, collected.stderr
    planned = command("credit", "run", "--env", COUNTER, "--branches", "2", "--plan", "--json")
    assert json.loads(planned.stdout)["estimate"]["model_calls"] == 3 * 2 * (3 + 2 + 1)
    assert not (tmp_path / "run" / "credit").exists()
    done = command("credit", "run", "--env", COUNTER, "--branches", "2", "--json")
    assert done.returncode == 0, done.stderr
    assert "18 continuations, 0 of them cached" in done.stderr
    summary = json.loads(done.stdout)
    assert summary["rollouts"]["credited"] == 3
    assert summary["model"] == "scripted:player:respond"
    assert summary == json.loads((tmp_path / "run" / "credit" / "credit.json").read_text())
    again = command("credit", "run", "--env", COUNTER, "--branches", "2")
    assert again.returncode == 0
    assert "This costs no model calls" in again.stderr
    assert "spent: 0 continuations" in again.stdout
    assert Counter(len(each.verdict.turn_rewards) for each in ludus.load(tmp_path / "run" / "credit")) == {3: 3}


def prepared(folder: Path, spec: str, **settings: Any) -> Path:
    """The run.json of a collection with a model that was not called."""
    given = {f"model.{name}": value for name, value in settings.items()}
    options = Options(model=spec, limit=1, output=folder, settings=given)
    Collection("mcqa", options).prepare()
    return folder / "run.json"


def test_the_model_of_a_run_is_opened_again_with_its_settings(tmp_path):
    prepared(tmp_path, "vllm:http://127.0.0.1:9/v1#small", temperature=0.7)
    model = recorded_model(Files(tmp_path))
    assert type(model).__name__ == "VllmModel"
    assert model.settings()["temperature"] == 0.7


@pytest.mark.parametrize(
    ("spec", "settings"),
    [
        ("http://127.0.0.1:9/v1?key=s3cret#small", {}),
        ("http://127.0.0.1:9/v1#small", {"headers": {"Authorization": "s3cret"}}),
    ],
)
def test_a_model_with_a_key_is_not_recorded_and_must_be_named(tmp_path, spec, settings):
    path = prepared(tmp_path, spec, **settings)
    assert "s3cret" not in path.read_text()
    assert "model" not in json.loads(path.read_text())["options"]
    with pytest.raises(UserError, match="--model"):
        recorded_model(Files(tmp_path))


def test_a_model_that_changed_since_the_run_is_refused(tmp_path):
    path = prepared(tmp_path, "http://127.0.0.1:9/v1#small")
    described = json.loads(path.read_text())
    described["identity"]["model"]["settings"]["temperature"] = 0.3
    path.write_text(json.dumps(described))
    with pytest.raises(UserError, match="the model of the run is another one now: settings.temperature was 0.3"):
        recorded_model(Files(tmp_path))
