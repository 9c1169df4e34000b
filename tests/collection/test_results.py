"""Reading results in Python: `ludus.load`, tables, groups, messages and training sequences."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import os
import sys
import tempfile
import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ludus
from ludus import Model, Request, Resources, Response, Run, ScriptedModel, UserError, Verdict, tool
from ludus.collection.columns import columns_of
from ludus.response import function_call, message
from ludus.tokens import Tokens

Row = dict[str, Any]


class Sum(Resources):
    """Add numbers with a tool."""

    class Task(ludus.Task):
        expected: int

    @tool
    async def add(self, a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    async def verify(self, task: Task, response: Response) -> Verdict:
        return Verdict(float(str(task.expected) in response.output_text), said=response.output_text)


class Calculator(Model):
    """Calls the tool, then says 5. With `tokens` it says which tokens it read and wrote."""

    name = "calculator"

    def __init__(self, tokens: bool = False) -> None:
        self._tokens = tokens

    async def respond(self, request: Request) -> Response:
        tokens = None
        if self._tokens:
            prompt = [7] if request.turn == 0 else [7, 1, 8]
            tokens = Tokens(prompt, [1 + request.turn], [-0.5])
        if request.turn == 0:
            return Response.of(function_call("add", {"a": 2, "b": 3}, call_id="c1"), model=self.name, tokens=tokens)
        return Response.of(message("5"), model=self.name, tokens=tokens)


def rows(*expected: int) -> list[Row]:
    params = {"input": "What is 2 + 3?", "instructions": "Be brief."}
    return [{"responses_create_params": params, "expected": number} for number in expected]


def collected(output: Path, *, tokens: bool = False, **options: Any) -> ludus.Collection:
    return ludus.collect(Sum, model=Calculator(tokens), input=rows(5, 6), repeats=2, output=output, **options)


@pytest.mark.parametrize("name", ["run", "run/rollouts.jsonl", "flat.jsonl"])
def test_a_run_is_loaded_from_its_folder_or_its_file(tmp_path: Path, name: str):
    collected(tmp_path / ("flat.jsonl" if name == "flat.jsonl" else "run"))
    run = ludus.load(tmp_path / name)
    assert len(list(run)) == 4
    assert sorted(run.rewards()) == [0.0, 0.0, 1.0, 1.0]
    assert run.metrics["reward"]["mean"] == 0.5
    rollout = next(iter(run))
    assert isinstance(rollout, ludus.Rollout)
    assert rollout.task.expected in (5, 6)
    assert rollout.verdict is not None
    assert rollout.verdict.values == {"said": "5"}


def test_groups_are_the_rollouts_of_each_task(tmp_path: Path):
    result = collected(tmp_path / "run")
    for source in (result, ludus.load(tmp_path / "run")):
        groups = list(source.groups())
        assert [[rollout.job.repeat for rollout in group] for group in groups] == [[0, 1], [0, 1]]
        assert all(len({rollout.task_id for rollout in group}) == 1 for group in groups)
        assert sorted([rollout.reward for rollout in group] for group in groups) == [[0.0, 0.0], [1.0, 1.0]]


def test_messages_are_the_whole_conversation_in_chat_format(tmp_path: Path):
    collected(tmp_path / "run")
    run = ludus.load(tmp_path / "run")
    rollout = next(iter(run))
    arguments = rollout.messages()[2]["tool_calls"][0]["function"]
    assert rollout.messages() == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "What is 2 + 3?"},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "type": "function", "function": arguments}]},
        {"role": "tool", "tool_call_id": "c1", "content": "5"},
        {"role": "assistant", "content": "5"},
    ]
    assert json.loads(arguments["arguments"]) == {"a": 2, "b": 3}
    (offered,) = rollout.tools()
    assert (offered["type"], offered["function"]["name"]) == ("function", "add")
    assert list(run.messages()) == [each.messages() for each in run]


def test_sequences_are_tokens_with_loss_masks(tmp_path: Path):
    result = collected(tmp_path / "run", tokens=True)
    for source in (result, ludus.load(tmp_path / "run")):
        found = list(source.sequences())
        assert [(rollout.reward, sequence.ids) for rollout, sequence in found] == [
            (rollout.reward, [7, 1, 8, 2]) for rollout in source
        ]
        assert {tuple(sequence.mask) for _, sequence in found} == {(0, 1, 0, 1)}
        assert {tuple(sequence.logprobs) for _, sequence in found} == {(0.0, -0.5, 0.0, -0.5)}


def test_sequences_without_token_ids_are_an_error_that_says_how_to_record_them(tmp_path: Path):
    collected(tmp_path / "run")
    run = ludus.load(tmp_path / "run")
    with pytest.raises(UserError, match=r"rollout \w+-0 has no token ids.*--tokens"):
        next(iter(run)).sequences()
    with pytest.raises(UserError, match="--tokens"):
        list(run.sequences())


def test_masked_rollouts_are_read_and_have_neither_rewards_nor_sequences(tmp_path: Path):
    class Masking(Sum):
        async def verify(self, task: Any, response: Response) -> Verdict:
            return Verdict(1.0, mask="too easy" if task.expected == 5 else None)

    ludus.collect(Masking, model=Calculator(tokens=True), input=rows(5, 6), output=tmp_path / "run")
    run = ludus.load(tmp_path / "run")
    assert sorted((rollout.outcome, rollout.task.expected) for rollout in run) == [("completed", 6), ("masked", 5)]
    assert run.rewards() == [1.0]
    assert [rollout.task.expected for rollout, _ in run.sequences()] == [6]


def test_failed_rollouts_are_read_with_their_cause(tmp_path: Path):
    model = ScriptedModel([{"error": {"kind": "http_500", "cause": "no"}}])
    ludus.collect(Sum, model=model, input=rows(5), output=tmp_path / "run", max_attempts=1)
    run = ludus.load(tmp_path / "run")
    assert list(run) == []
    (failed,) = run.failures()
    assert failed.error is not None
    assert (failed.reward, failed.error.stage, failed.error.kind, failed.error.cause) == (
        None,
        "model",
        "http_500",
        "no",
    )
    assert "failed" in str(run)


def nemo_gym_rows() -> list[Row]:
    bundle = {"prompt_token_ids": [7], "generation_token_ids": [1, 2], "generation_log_probs": [-0.5, -0.25]}
    answers = [{**message("5"), **bundle}, {**message("6"), **bundle}]
    return [
        {
            "responses_create_params": {"input": [{"role": "user", "content": "What is 2 + 3?"}]},
            "expected": 5,
            "response": {"output": [answers[repeat]], "usage": None},
            "reward": [1.0, 0.0][repeat],
            "agent_ref": {"type": "responses_api_agents", "name": "sum_simple_agent"},
            "_ng_task_index": 3,
            "_ng_rollout_index": repeat,
        }
        for repeat in range(2)
    ]


def test_rollouts_of_nemo_gym_are_loaded(tmp_path: Path):
    file = tmp_path / "rollouts.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in nemo_gym_rows()))
    run = ludus.load(file)
    assert run.rewards() == [1.0, 0.0]
    ((first, second),) = run.groups()
    assert (first.task.expected, first.reward, second.job.repeat) == (5, 1.0, 1)
    assert [sequence.ids for _, sequence in run.sequences()] == [[7, 1, 2]] * 2
    assert [messages[-1]["content"] for messages in run.messages()] == ["5", "6"]
    assert all("generation_token_ids" not in item for item in first.response.output)  # type: ignore[union-attr]
    assert run.metrics["pass@k"] == {"1": 0.5, "2": 1.0}


def test_rollouts_of_nemo_gym_that_are_masked_say_so(tmp_path: Path):
    file = tmp_path / "rollouts.jsonl"
    masked, plain = nemo_gym_rows()
    file.write_text("".join(json.dumps(row) + "\n" for row in ({**masked, "mask_sample": True}, plain)))
    assert [rollout.outcome for rollout in ludus.load(file)] == ["masked", "completed"]
    assert ludus.load(file).rewards() == [0.0]


@pytest.mark.parametrize(
    ("content", "error"),
    [
        ("{", r"rollouts\.jsonl:1: not JSON"),
        ("[]", r"rollouts\.jsonl: this is a JSON array"),
        ("3", r"rollouts\.jsonl:1: not a rollout: not a JSON object"),
        ('{"a": 1}', r"rollouts\.jsonl:1: not a rollout: the row has no response"),
        ('{"response": {"output": []}}', r"rollouts\.jsonl:1: not a rollout: the row has no reward"),
        ('{"response": {"output": []}, "reward": "high"}', r"rollouts\.jsonl:1: not a rollout: a reward must be"),
        ('{"rollout_id": "a-0", "task_id": "a", "outcome": "completed"}', r"rollouts\.jsonl:1: not a rollout: repeat"),
    ],
)
def test_a_line_that_is_no_rollout_is_an_error_with_file_and_line(tmp_path: Path, content: str, error: str):
    file = tmp_path / "rollouts.jsonl"
    file.write_text(f"{content}\n")
    with pytest.raises(UserError, match=error):
        list(ludus.load(file))


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda part: st.lists(part), max_leaves=5))
def test_any_json_in_the_place_of_a_field_is_a_rollout_or_a_user_error(value: Any):
    for name in ("response", "reward", "responses_create_params", "model_calls", "agent_ref", "task_id", "outcome"):
        for row in (nemo_gym_rows()[0], {**nemo_gym_rows()[0], "rollout_id": "a", "task_id": "a", "repeat": 0}):
            with tempfile.TemporaryDirectory() as folder:
                file = Path(folder) / "rollouts.jsonl"
                file.write_text(json.dumps({**row, "outcome": "completed", name: value}) + "\n")
                with contextlib.suppress(UserError):
                    (rollout,) = ludus.load(file)
                    assert isinstance(rollout.reward, float)


def test_a_torn_last_line_is_left_out_because_the_collection_may_still_run(tmp_path: Path):
    collected(tmp_path / "run")
    file = tmp_path / "run" / "rollouts.jsonl"
    file.write_bytes(file.read_bytes()[:-10])
    assert len(list(ludus.load(tmp_path / "run"))) == 3


@pytest.mark.parametrize("name", ["absent", "empty"])
def test_a_path_without_a_run_is_an_error_with_a_hint(tmp_path: Path, name: str):
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="Name a collection's folder|Collect some"):
        ludus.load(tmp_path / name)


def test_iterating_needs_memory_for_one_rollout_only(tmp_path: Path):
    collected(tmp_path / "run")
    file = tmp_path / "run" / "rollouts.jsonl"
    lines = file.read_bytes()
    file.write_bytes(b"".join(lines.replace(b'"rollout_id":"', b'"rollout_id":"%d-' % copy) for copy in range(2000)))
    tracemalloc.start()
    try:
        assert sum(1 for _ in ludus.load(file)) == 8000
        assert tracemalloc.get_traced_memory()[1] < min(len(lines) * 200, 4 << 20)
    finally:
        tracemalloc.stop()


def test_metrics_that_are_older_than_the_rollouts_are_computed_again(tmp_path: Path):
    collected(tmp_path / "run")
    file = tmp_path / "run" / "rollouts.jsonl"
    lines = file.read_text().splitlines()
    file.write_text("".join(json.dumps({**json.loads(line), "reward": 1.0}) + "\n" for line in lines))
    os.utime(tmp_path / "run" / "metrics.json", (1, 1))
    assert ludus.load(tmp_path / "run").metrics["reward"]["mean"] == 1.0


def test_metrics_that_are_computed_again_use_the_runs_own_pass_reward(tmp_path: Path):
    class Half(Sum):
        async def verify(self, task: Any, response: Response) -> float:
            return 0.5

    options: Row = {"model": Calculator(), "input": rows(5), "repeats": 2, "output": tmp_path / "run"}
    before = ludus.collect(Half, **options, settings={"pass_reward": 0.5})
    (tmp_path / "run" / "metrics.json").unlink()
    run = ludus.load(tmp_path / "run")
    assert run.metrics["pass@k"] == before.metrics["pass@k"] == {"1": 1.0, "2": 1.0}
    assert "pass@1       1.000 (reward ≥ 0.5)" in str(run)


def test_a_result_prints_as_a_table(tmp_path: Path):
    result = collected(tmp_path / "run")
    for source in (result, ludus.load(tmp_path / "run")):
        for shown in (str(source), repr(source)):
            assert "Sum with calculator" in shown
            assert "completed" in shown
            assert "0.500" in shown
            assert len(shown.splitlines()) > 5
        html = source._repr_html_()
        assert "<table" in html
        assert "0.500" in html


class Broken(Resources):
    """Its tool raises, and its `open` blocks the event loop."""

    async def open(self, task: ludus.Task) -> None:
        time.sleep(0.6)  # noqa: ASYNC251 (the warning about it is what the test looks for)

    @tool
    async def look(self) -> str:
        """Look."""
        raise RuntimeError("the lamp is off")

    async def verify(self, task: ludus.Task, response: Response) -> float:
        return 1.0


def test_the_table_shows_tool_errors_warnings_and_every_pass_rate(tmp_path: Path):
    script = ScriptedModel([{"call": "look", "arguments": {}}, "dark"])
    row: Row = {"responses_create_params": {"input": "Look."}}
    result = ludus.collect(Broken, model=script, input=[row], repeats=2, output=tmp_path / "run")
    run = ludus.load(tmp_path / "run")
    assert run.warnings == result.warnings != []
    for source in (result, run):
        for shown in (repr(source), source._repr_html_()):
            assert "2 times look: RuntimeError" in shown
            assert "blocked the event loop" in shown
            assert all(name in shown for name in ("pass@1", "pass@2", "pass^2"))


def test_the_table_of_one_repeat_shows_pass_at_1():
    result = ludus.collect(Sum, model=Calculator(), input=rows(5, 6))
    assert "pass@1" in str(result)
    assert "pass@1" in result._repr_html_()


def test_the_table_of_a_mixed_run_has_a_line_for_each_environment(tmp_path: Path):
    class Twice(Sum):
        async def verify(self, task: Any, response: Response) -> float:
            return 0.25

    both = [{**row, "agent_ref": {"name": name}} for row in rows(5) for name in ("Sum", "Twice")]
    result = ludus.collect([Sum, Twice], model=Calculator(), input=both, output=tmp_path / "run")
    sources = [result, ludus.load(tmp_path / "run")]
    for name in ("stored", "computed again"):
        for source in sources:
            lines = str(source).splitlines()
            assert [line.split()[0] for line in lines if "0.250" in line] == ["Twice"], name
            assert any(line.split()[:5] == ["Sum", "1", "0", "0", "1.000"] for line in lines), name
            assert "<td>Twice</td>" in source._repr_html_()
        (tmp_path / "run" / "metrics.json").unlink(missing_ok=True)
        sources = [ludus.load(tmp_path / "run")]


def test_the_table_names_the_first_failure_and_its_place_if_nothing_completed(tmp_path: Path):
    class Fails(Sum):
        async def verify(self, task: Any, response: Response) -> float:
            raise ValueError("no such key\x1b[31m")

    result = ludus.collect(Fails, model=Calculator(), input=rows(5), output=tmp_path / "run")
    in_memory = ludus.collect(Fails, model=Calculator(), input=rows(5))
    for source in (result, in_memory, ludus.load(tmp_path / "run")):
        (line,) = [line for line in str(source).splitlines() if "first failure" in line]
        assert "no such key" in line
        assert "test_results.py:" in line
        assert "in verify" in line
        assert "\x1b" not in str(source)


def test_a_table_escapes_the_names_in_a_file(tmp_path: Path):
    file = tmp_path / "rollouts.jsonl"
    name = "<script>\x1b[31m"
    file.write_text(json.dumps({**nemo_gym_rows()[0], "agent_ref": {"name": name}}) + "\n")
    run = ludus.load(file)
    assert "<script>" not in run._repr_html_()
    assert "\x1b" not in str(run)


def test_dir_lists_every_public_name():
    assert set(ludus.__all__) <= set(dir(ludus))
    assert {"load", "Run", "collect_async", "__version__"} <= set(dir(ludus))


async def test_collect_async_is_awaited(tmp_path: Path):
    result = await ludus.collect_async(Sum, model=Calculator(), input=rows(5), output=tmp_path / "run")
    assert result.rewards() == [1.0]
    both = await asyncio.gather(*(ludus.collect_async(Sum, model=Calculator(), input=rows(5)) for _ in range(2)))
    assert [each.rewards() for each in both] == [[1.0], [1.0]]


async def test_collect_in_a_running_loop_says_to_await_its_twin():
    with pytest.warns(RuntimeWarning, match=r"await ludus\.collect_async\("):
        result = ludus.collect(Sum, model=Calculator(), input=rows(5))
    assert result.rewards() == [1.0]


@pytest.mark.parametrize("call", [ludus.collect, ludus.stream, ludus.collect_async])
def test_an_unknown_option_is_an_error_with_a_suggestion(call: Any):
    async def consumed() -> None:
        made = call(Sum, model=Calculator(), input=rows(5), repeat=2)
        if inspect.isasyncgen(made):
            await anext(made)
        else:
            await made

    with pytest.raises(UserError, match=r"no option `repeat`\. Did you mean repeats\?"):
        asyncio.run(consumed())


@pytest.mark.parametrize(("name", "value"), [("repeats", "2"), ("limit", 1.5), ("concurrency", "many"), ("seed", None)])
def test_an_option_of_the_wrong_type_is_an_error_that_names_it(name: str, value: Any):
    with pytest.raises(UserError, match=rf"{name} must be .*{value}"):
        ludus.collect(Sum, model=Calculator(), input=rows(5), **{name: value})


def test_a_run_is_what_load_returns():
    assert inspect.signature(ludus.load).return_annotation in (Run, "Run")


@pytest.fixture(params=["memory", "files", "loaded"])
def result(request, counter, rows, tmp_path):
    """The same six rollouts, two of them failed, as each kind of result."""

    def answer(asked: Any) -> Any:
        return {"error": {"kind": "http_500", "cause": "down"}} if asked.session.endswith("-2") else "done"

    output = None if request.param == "memory" else tmp_path / "out"
    collected = ludus.collect(counter, model=ScriptedModel(answer), input=rows(2), repeats=3, output=output)
    return collected if request.param != "loaded" else ludus.load(tmp_path / "out")


def test_results_are_counted_indexed_and_sliced(result):
    assert len(result) == len(list(result)) == 4
    ids = [rollout.rollout_id for rollout in result]
    assert [result[index].rollout_id for index in range(4)] == ids
    assert result[-1].rollout_id == ids[-1]
    assert [rollout.rollout_id for rollout in result[1:3]] == ids[1:3]
    assert [rollout.rollout_id for rollout in result[::-1]] == ids[::-1]
    with pytest.raises(IndexError, match="rollout 4 of 4"):
        result[4]


def test_rollouts_are_all_rollouts_and_failures_those_that_failed(result):
    assert len(result.rollouts) == 6
    assert len(list(result.failures())) == 2
    assert {rollout.outcome.value for rollout in result.rollouts} == {"completed", "failed"}


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_a_table_has_a_row_for_every_rollout(result, library):
    pytest.importorskip(library, reason=f"needs {library}: pip install {library}")
    name = {"pandas": "to_pandas", "polars": "to_polars", "pyarrow": "to_arrow"}[library]
    table = getattr(result, name)()
    if library == "pandas":
        values = table.to_dict("list")
    else:
        values = table.to_dict(as_series=False) if library == "polars" else table.to_pydict()
    assert sorted(values["outcome"]) == ["completed"] * 4 + ["failed"] * 2
    rewards = dict(zip(values["outcome"], values["reward"], strict=True))
    assert rewards["completed"] == 0.0
    assert rewards["failed"] is None or rewards["failed"] != rewards["failed"]
    assert {kind for kind in values["kind"] if isinstance(kind, str)} == {"http_500"}


def test_a_missing_table_library_is_one_line(result, monkeypatch):
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(UserError, match=r"polars is not installed. Install it with: pip install polars"):
        result.to_polars()


def test_values_of_several_types_become_text_in_a_table():
    class Odd(Resources):
        async def verify(self, task: Any, response: Any) -> Verdict:
            number = int(task.responses_create_params["input"])
            odd: Any = [1, "two", [3], None, 2**70, {"a": 5}][number]
            return Verdict(1.0, components={"part": 1.0}, odd=odd, whole=number, huge=2**70)

    rows = [{"responses_create_params": {"input": str(number)}} for number in range(6)]
    columns = columns_of(ludus.collect(Odd, model=ScriptedModel(["done"]), input=rows).rollouts)
    assert sorted(filter(None, columns["value.odd"])) == sorted(["1", "two", "[3]", str(2**70), '{"a":5}'])
    assert sorted(columns["value.whole"]) == [0, 1, 2, 3, 4, 5]
    assert columns["value.huge"] == [float(2**70)] * 6
    assert columns["component.part"] == [1.0] * 6
