"""The figures of a profile are those of its rollouts: counts add up, and no reward is invented."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ludus_bench.profile.difficulty import Band, write_difficulty, write_subset
from ludus_bench.profile.policies import compare_policies
from ludus_bench.profile.profile import Profile
from profiled_runs import Others, Words, collect

import ludus
from ludus import Resources, ScriptedModel
from ludus.errors import UserError
from ludus.store.prices import Price, read_prices
from ludus.store.statistics import ClusteredMean


def test_each_task_has_its_pass_rate_with_interval_and_variance(tmp_path: Path) -> None:
    run = collect(tmp_path / "run", "1", "0", "0", "1", "0.5 odd", "crash")
    (task,) = Profile([run]).summary()["tasks"]
    assert (task["completed"], task["failed"], task["masked"], task["passed"]) == (4, 1, 1, 2)
    assert (task["pass_rate"], task["mean_reward"]) == (0.5, 0.5)
    assert task["variance"] == pytest.approx(1 / 3)
    by_rollout = ClusteredMean()
    for reward in (1, 0, 0, 1):
        by_rollout.add(1, reward)
    assert task["ci95"] == pytest.approx(list(by_rollout.interval((0.0, 1.0)) or ()))


def test_a_task_without_a_reward_has_no_pass_rate(tmp_path: Path) -> None:
    (task,) = Profile([collect(tmp_path / "run", "crash", "1 odd")]).summary()["tasks"]
    assert (task["pass_rate"], task["mean_reward"], task["variance"], task["ci95"]) == (None, None, None, None)
    assert (task["failed"], task["masked"], task["groups"]) == (1, 1, 0)


def test_a_group_teaches_if_its_rewards_differ(tmp_path: Path) -> None:
    same = collect(tmp_path / "same", "1", "1", tasks=("a", "b"))
    differ = collect(tmp_path / "differ", "1", "0", tasks=("c",))
    single = collect(tmp_path / "single", "1", "crash", tasks=("d",))
    signal = Profile([same, differ, single]).summary()["overall"]["learning_signal"]
    assert signal == {"groups": 3, "with_signal": 1, "share": pytest.approx(1 / 3)}


def test_rollouts_of_two_runs_are_not_one_group(tmp_path: Path) -> None:
    """A task that one policy always passes and another never does teaches neither."""
    runs = [collect(tmp_path / name, reward, reward) for name, reward in (("weak", "0"), ("strong", "1"))]
    summary = Profile(runs).summary()
    assert summary["overall"]["learning_signal"] == {"groups": 2, "with_signal": 0, "share": 0.0}
    assert summary["tasks"][0]["pass_rate"] == 0.5


def test_environments_are_profiled_apart_and_together(tmp_path: Path) -> None:
    """The tasks of two environments may have the same id."""
    one = collect(tmp_path / "one", "1", "0")
    two = collect(tmp_path / "two", "1", "1", "crash", kind=Others)
    summary = Profile([one, two]).summary()
    assert {name: each["counts"]["dispatched"] for name, each in summary["environments"].items()} == {
        "Words": 2,
        "Others": 3,
    }
    overall = summary["overall"]
    assert overall["counts"] == {"dispatched": 5, "completed": 4, "failed": 1, "masked": 0}
    assert overall["tasks"] == 2
    assert overall["pass_rate"]["mean"] == 0.75
    assert overall["failures"] == {"verify/crash": 1}
    assert overall["pass@k"]["2"] == 1.0  # of two tasks, not of one task with four repeats
    assert "4" not in overall["pass@k"]


def test_tokens_seconds_and_cost_are_known_by_stage(tmp_path: Path) -> None:
    run = collect(tmp_path / "run", "1 10", "0 30")
    overall = Profile([run], prices={"m-1": Price(input=1.0, output=10.0, cached=0.5)}).summary()["overall"]
    assert overall["tokens"] == {"model": {"input": 200, "cached": 80, "output": 40, "reasoning": 0}}
    assert {"model", "verify", "total"} <= overall["seconds"].keys()
    assert all(each["count"] == 2 for each in overall["seconds"].values())
    expected = (120 * 1.0 + 80 * 0.5 + 40 * 10.0) / 1e6
    assert overall["cost"]["total"] == pytest.approx(expected)
    assert overall["cost"]["per_completed"] == pytest.approx(expected / 2)
    assert overall["cost"]["unpriced_tokens"] == {}


def test_a_model_without_a_price_has_no_cost(tmp_path: Path) -> None:
    run = collect(tmp_path / "run", "1 10")
    cost = Profile([run], prices={"other": Price(input=1.0, output=1.0)}).summary()["overall"]["cost"]
    assert cost == {"total": None, "per_completed": None, "unpriced_tokens": {"m-1": 110}}
    assert Profile([run]).summary()["overall"]["cost"] is None


def test_an_attempt_that_was_tried_again_costs_tokens_and_counts_once(tmp_path: Path) -> None:
    run = collect(tmp_path / "run", "crash 20")
    collect(run, "1 10", resume=True, max_attempts=2)
    overall = Profile([run], prices={"m-1": Price(input=0.0, output=1e6)}).summary()["overall"]
    assert overall["counts"] == {"dispatched": 1, "completed": 1, "failed": 0, "masked": 0}
    assert overall["retried_attempts"] == 1
    assert overall["cost"]["total"] == 30.0


def test_tokens_of_a_judge_and_of_a_simulated_user_have_stages_of_their_own(tmp_path: Path) -> None:
    run = collect(tmp_path / "run", "1 10")
    row = json.loads((run / "rollouts.jsonl").read_text())
    row["usage"]["user"] = {"input_tokens": 7, "output_tokens": 1}
    row |= {"judge_usage": {"input_tokens": 5, "output_tokens": 2}, "verdict_fields": ["judge_usage"]}
    (run / "rollouts.jsonl").write_text(json.dumps(row) + "\n")
    prices = {"judge": Price(input=1e6, output=0.0)}
    overall = Profile([run], prices=prices).summary()["overall"]
    inputs = {stage: tokens["input"] for stage, tokens in overall["tokens"].items()}
    assert inputs == {"model": 100, "user": 7, "verify": 5}
    assert overall["cost"]["total"] == 5.0
    assert overall["cost"]["unpriced_tokens"] == {"m-1": 110, "user": 8}


def test_tool_calls_errors_and_stop_reasons_are_counted(tmp_path: Path) -> None:
    overall = Profile([collect(tmp_path / "run", "call", "1", "0")]).summary()["overall"]
    assert overall["tools"] == {
        "look": {"calls": 4, "errors": 2},
        "tools that were not offered": {"calls": 2, "errors": 0},
    }
    assert overall["tool_errors"][0] | {"where": ""} == {
        "tool": "look",
        "exception": "ValueError",
        "where": "",
        "count": 2,
    }
    assert overall["stop_reasons"] == {"completed": 2}


def test_components_correlate_with_the_reward_and_with_each_other(tmp_path: Path) -> None:
    run = collect(tmp_path / "run", "1", "0", "0.5", "0.9 odd")
    each = Profile([run]).summary()["overall"]["components"]["each"]
    assert each["form"]["rollouts"] == 3  # the masked rollout has no part in it
    assert each["form"]["mean"] == 0.25
    assert each["form"]["correlation_with_reward"] == pytest.approx(1.0)
    assert each["fact"]["correlation"] == {"form": pytest.approx(-1.0)}


def test_length_is_in_tokens_only_if_all_rollouts_have_them(tmp_path: Path) -> None:
    run = collect(tmp_path / "run", "1 1", "0 3", "0 600")
    length = Profile([run]).summary()["overall"]["length"]
    assert length["unit"] == "tokens"
    assert [(each["from"], each["to"], each["rollouts"]) for each in length["bins"]] == [
        (1, 1, 1),
        (2, 3, 1),
        (512, 1023, 1),
    ]
    assert [each["mean_reward"] for each in length["bins"]] == [1.0, 0.0, 0.0]
    assert length["correlation"] == pytest.approx(length["correlation_within_tasks"])  # there is one task
    mixed = collect(tmp_path / "mixed", "1 1", "0")
    assert Profile([mixed]).summary()["overall"]["length"]["unit"] == "characters"


def test_a_duplicated_line_counts_once(tmp_path: Path) -> None:
    run = collect(tmp_path / "run", "1", "0")
    file = run / "rollouts.jsonl"
    file.write_bytes(file.read_bytes() * 2)
    assert Profile([run]).summary()["overall"]["counts"]["dispatched"] == 2


def test_a_profile_agrees_with_the_metrics_of_the_collection(tmp_path: Path) -> None:
    run = collect(tmp_path / "run", "1", "0", "0.5 odd", "crash", tasks=("a", "b"))
    overall, metrics = Profile([run]).summary()["overall"], ludus.load(run).metrics
    for key in ("counts", "failures", "reward", "pass@k", "pass^k", "stop_reasons", "turns"):
        assert overall[key] == metrics[key]


def test_a_file_of_another_program_is_profiled(tmp_path: Path) -> None:
    rows = [
        {
            "responses_create_params": {"input": "q"},
            "response": {"output": [{"role": "assistant", "content": "a"}], "usage": {"output_tokens": 3}},
            "reward": reward,
            "agent_ref": {"name": name},
            "_ng_task_index": index,
            "_ng_rollout_index": number,
        }
        for index, name in enumerate(("one", "two"))
        for number, reward in enumerate((0.0, 0.6))
    ]
    file = tmp_path / "rollouts.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    summary = Profile([file], pass_reward=0.5).summary()
    assert [summary["environments"][name]["pass_rate"]["mean"] for name in ("one", "two")] == [0.5, 0.5]
    assert summary["overall"]["pass@k"] == {"1": 0.5, "2": 1.0}


def test_the_difficulty_file_has_one_line_for_each_task(tmp_path: Path) -> None:
    profile = Profile([collect(tmp_path / "run", "1", "0", tasks=("a", "b"))])
    write_difficulty(profile, tmp_path / "out" / "difficulty.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "out" / "difficulty.jsonl").read_text().splitlines()]
    assert [line["task_id"] for line in lines] == ["a", "b"]
    assert lines == profile.summary()["tasks"]
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["difficulty.jsonl"]


def test_the_subset_is_a_dataset_of_the_tasks_in_between(tmp_path: Path) -> None:
    easy = collect(tmp_path / "easy", "1", "1", tasks=("easy",))
    mixed = collect(tmp_path / "mixed", "1", "0", "0.5 odd", tasks=("b", "c"))
    hard = collect(tmp_path / "hard", "0", "0", tasks=("hard",))
    none = collect(tmp_path / "none", "crash", tasks=("none",))
    subset = tmp_path / "subset.jsonl"
    counts = write_subset(Profile([easy, mixed, hard, none]), Band.parse("0.1..0.9"), subset)
    assert counts == {"kept": 2, "too_hard": 1, "too_easy": 1, "unknown": 1}
    again = ludus.collect(Words, model=ludus.ScriptedModel(["1"]), input=subset, output=tmp_path / "again")
    assert sorted(rollout.task_id for rollout in again) == ["b", "c"]
    original = {rollout.task_id: rollout.job.row["responses_create_params"] for rollout in ludus.load(mixed)}
    assert {rollout.task_id: rollout.job.row["responses_create_params"] for rollout in again} == original


@given(st.text(max_size=12))
def test_a_band_is_two_shares_in_order_or_refused(text: str) -> None:
    try:
        band = Band.parse(text)
    except UserError:
        return
    assert 0 <= band.low <= band.high <= 1


@pytest.mark.parametrize("text", ["0.9..0.1", "0.1", "nan..1", "0..2", "..", "-1..0.5"])
def test_a_wrong_band_is_refused(text: str) -> None:
    with pytest.raises(UserError, match=r"such as 0\.1\.\.0\.9"):
        Band.parse(text)


def test_the_ends_of_a_band_belong_to_it(tmp_path: Path) -> None:
    profile = Profile([collect(tmp_path / "run", "1", "0")])
    assert write_subset(profile, Band.parse("0.5..0.5"), tmp_path / "s.jsonl")["kept"] == 1


def test_two_policies_are_compared_task_by_task(tmp_path: Path) -> None:
    before = Profile([collect(tmp_path / "before", "0", "1", tasks=("a", "b"))])
    after = Profile([collect(tmp_path / "after", "1", "1", tasks=("a", "b"))])
    found = compare_policies(before, after)
    assert (found["passed_more_often"], found["passed_less_often"], found["passed_as_often"]) == (2, 0, 0)
    assert found["difference"] == 0.5
    assert found["moved"][0] == {
        "task_id": "a",
        "name": "a",
        "pass_rate_a": 0.5,
        "pass_rate_b": 1.0,
        "change": 0.5,
    }


def test_runs_that_disagree_about_a_pass_are_refused(tmp_path: Path) -> None:
    runs = [collect(tmp_path / "a", "1"), collect(tmp_path / "b", "1", settings={"pass_reward": 0.5})]
    with pytest.raises(UserError, match=r"a pass of Words is a reward of 1 in .* and 0.5 in .*--pass"):
        Profile(runs)
    assert Profile(runs, pass_reward=0.5).summary()["overall"]["pass_rate"]["mean"] == 1.0


def test_a_run_that_is_named_twice_is_refused(tmp_path: Path) -> None:
    run = collect(tmp_path / "run", "1")
    with pytest.raises(UserError, match="is the same run as"):
        Profile([run, run / "rollouts.jsonl"])


@pytest.mark.parametrize(
    ("text", "words"),
    [("[]", "no price list"), ("m: 3", "the price of m is 3"), ("m: {input: -1, output: 0}", "m"), ("m: {in: 1}", "m")],
)
def test_a_wrong_price_list_is_one_line(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "prices.yaml").write_text(text)
    with pytest.raises(UserError, match=words):
        read_prices(tmp_path / "prices.yaml")


def test_a_task_without_an_id_of_its_own_is_called_by_the_first_words_of_its_prompt(tmp_path):
    class Always(Resources):
        async def verify(self, task: Any, response: Any) -> float:
            return 1.0

    long = "How many sheep " * 20
    rows = [
        {"responses_create_params": {"input": "What is\n two and two?"}},
        {"responses_create_params": {"input": long}},
        {"task_id": "sheep", "responses_create_params": {"input": "Count the sheep."}},
    ]
    ludus.collect(Always, model=ScriptedModel(["4"]), input=rows, output=tmp_path / "run")
    names = {task["name"] for task in Profile([tmp_path / "run"]).summary()["tasks"]}
    (cut,) = names - {"What is two and two?", "sheep"}
    assert cut.endswith(" ...")
    assert long.startswith(cut[:-4])
    assert len(cut) <= 64
