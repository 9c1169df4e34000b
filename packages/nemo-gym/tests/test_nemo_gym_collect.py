"""`ng_collect_rollouts` sends rows to running servers and writes the files that NeMo Gym's tools read."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from ludus_nemo_gym.agent_servers import find_running
from ludus_nemo_gym.commands import ng_collect_rollouts, ng_status
from ludus_nemo_gym.head import head_url
from ludus_nemo_gym.materialize import Expansion, materialized
from nemo_gym.path_utils import aggregate_metrics_path_for, failures_path_for
from nemo_gym.rollout_collection import RolloutCollectionConfig, RolloutCollectionHelper
from nemo_gym.server_utils import BaseServerConfig
from serving import COUNTER, COUNTER_ROW, served

from ludus import UserError
from ludus.http.app import App
from ludus.http.listening import Listening, bind
from ludus.http.messages import Incoming, Reply
from ludus.runtime.encoding import encode

AGENT = f"{COUNTER}_simple_agent"
Row = dict[str, Any]


class ForeignAgent(App):
    """An agent server that is not Ludus's, and its head in one. `answers` makes the reply to a row."""

    def __init__(self, answers: Callable[[Row, int], tuple[int, Any]]) -> None:
        super().__init__()
        self.answers = answers
        self.calls: Counter[tuple[int, int]] = Counter()
        self.rows: list[Row] = []
        self.aggregated: list[Row] = []
        self.port = 0
        self.routes |= {("GET", "/global_config_dict_yaml"): self.config, ("POST", "/run"): self.run}
        self.routes["GET", "/server_instances"] = self.instances
        self.routes["POST", "/aggregate_metrics"] = self.aggregate

    async def config(self, incoming: Incoming) -> Reply:
        block = f"{{host: 0.0.0.0, port: {self.port}}}"
        return Reply.of(f"theirs:\n  responses_api_agents:\n    some_agent: {block}\npolicy_api_key: x\n")

    async def instances(self, incoming: Incoming) -> Reply:
        names = {"name": "some_agent", "process_name": "theirs", "server_type": "responses_api_agents"}
        return Reply.of([{**names, "url": f"http://127.0.0.1:{self.port}"}])

    async def run(self, incoming: Incoming) -> Reply:
        row = incoming.json()
        key = (row["_ng_task_index"], row["_ng_rollout_index"])
        self.calls[key] += 1
        self.rows.append(row)
        status, body = self.answers(row, self.calls[key])
        return Reply.of(body, status)

    async def aggregate(self, incoming: Incoming) -> Reply:
        """Compute a statistic of a text, as the servers of NeMo Gym do for the answers that they extract."""
        self.aggregated = incoming.json()["verify_responses"]
        if not any("extracted_answer" in row for row in self.aggregated):
            return Reply.of("this server computes no statistics", 404)
        no_answer = sum(row.get("extracted_answer") is None for row in self.aggregated) / len(self.aggregated)
        metrics = {"pass@1/no_answer": 100 * no_answer}
        return Reply.of({"group_level_metrics": [], "agent_metrics": metrics, "key_metrics": metrics})


@contextmanager
def foreign_agent(answers: Callable[[Row, int], tuple[int, Any]]) -> Iterator[ForeignAgent]:
    """Run a `ForeignAgent` on a thread."""
    import threading

    app, loop = ForeignAgent(answers), asyncio.new_event_loop()
    listening = bind("theirs", "127.0.0.1", 0)
    app.port = listening.getsockname()[1]
    server = Listening(app, listening)
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(server.begin(), loop).result(300)
        yield app
    finally:
        asyncio.run_coroutine_threadsafe(server.stop(), loop).result(300)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def verified(row: Row, reward: float = 1.0, **fields: Any) -> Row:
    text = {"type": "output_text", "text": "yes", "annotations": []}
    message = {"id": "m", "type": "message", "role": "assistant", "status": "completed", "content": [text]}
    response = {"id": "r", "object": "response", "output": [message], "usage": {"input_tokens": 3, "output_tokens": 2}}
    return {**row, "response": response, "reward": reward, **fields}


def collect(folder: Path, port: int, *arguments: str, rows: list[Row] | None = None) -> int:
    """Run the command in a folder and return its exit code."""
    (folder / "in.jsonl").write_bytes(b"".join(encode(row) + b"\n" for row in rows or [COUNTER_ROW]))
    named = [f"+input_jsonl_fpath={folder / 'in.jsonl'}", f"+output_jsonl_fpath={folder / 'out.jsonl'}"]
    with pytest.raises(SystemExit) as ended:
        ng_collect_rollouts([*named, f"++head_server.port={port}", *arguments])
    return int(ended.value.code or 0)


def lines(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def questions(count: int) -> list[Row]:
    return [{"responses_create_params": {"input": f"question {number}"}} for number in range(count)]


def test_ludus_servers_play_rows_and_the_files_have_nemo_gyms_shape(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    other = {**COUNTER_ROW, "expected_count": 5}
    with served(COUNTER) as serving:
        port = int(serving.head_url.rpartition(":")[2])
        arguments = [f"+agent_name={AGENT}", "+num_repeats=2", "+responses_create_params={temperature: 0.5}"]
        assert collect(tmp_path, port, *arguments, rows=[COUNTER_ROW, other, COUNTER_ROW]) == 0
    rows = lines(tmp_path / "out.jsonl")
    keys = sorted((row["_ng_task_index"], row["_ng_rollout_index"]) for row in rows)
    assert keys == [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1)]
    assert {row["_ng_task_index"]: row["reward"] for row in rows} == {0: 1.0, 1: 0.0}
    for row in rows:
        assert row["agent_ref"] == {"type": "responses_api_agents", "name": AGENT}
        assert row["responses_create_params"] == {"input": "add 3 to the counter", "temperature": 0.5}
        assert [item["type"] for item in row["response"]["output"]] == [
            "function_call",
            "function_call_output",
            "message",
        ]
        assert not {"rollout_id", "repeat", "attempt", "outcome", "timings", "model_calls", "rollout_seed"} & row.keys()
    sent = lines(tmp_path / "out_materialized_inputs.jsonl")
    assert [(row["_ng_task_index"], row["_ng_rollout_index"]) for row in sent] == [
        (0, 0),
        (0, 1),
        (1, 0),
        (1, 1),
        (0, 2),
        (0, 3),
    ]
    (metrics,) = json.loads((tmp_path / "out_aggregate_metrics.json").read_text())
    assert metrics["agent_ref"] == {"name": AGENT}
    assert metrics["agent_metrics"]["mean/reward"] == pytest.approx(4 / 6)
    assert metrics["key_metrics"]["mean/reward"] == pytest.approx(4 / 6)
    assert {group["_ng_task_index"]: group["mean/reward"] for group in metrics["group_level_metrics"]} == {0: 1, 1: 0}
    assert not (tmp_path / "out_failures.jsonl").exists()
    assert "mean reward: 0.667" in capsys.readouterr().out


def test_the_reply_of_a_foreign_agent_is_written_unchanged(tmp_path: Path):
    def answer(row: Row, time: int) -> tuple[int, Any]:
        return 200, verified(row, 0.5, accuracy=1, reward_components={"a": 0.5}, rollout_id="theirs")

    with foreign_agent(answer) as app:
        assert collect(tmp_path, app.port, "+agent_name=theirs", "+limit=2", rows=questions(3)) == 0
    rows = lines(tmp_path / "out.jsonl")
    assert len(rows) == 2
    for row in rows:
        sent = next(each for each in app.rows if each["_ng_task_index"] == row["_ng_task_index"])
        assert row == verified(sent, 0.5, accuracy=1, reward_components={"a": 0.5}, rollout_id="theirs")
    (metrics,) = json.loads((tmp_path / "out_aggregate_metrics.json").read_text())
    assert metrics["agent_metrics"]["mean/accuracy"] == 1.0
    assert metrics["agent_metrics"]["mean/input_tokens"] == 3.0


def test_the_agents_server_gets_all_fields_but_the_long_ones(tmp_path: Path):
    long = {"ng_agent_observations": [1], "ng_model_call_capture": {"calls": []}, "ng_trajectory": {"steps": []}}

    def answer(row: Row, time: int) -> tuple[int, Any]:
        result = verified(row, extracted_answer="B", task={"answers": ["B", None]}, **long)
        result["response"]["incomplete_details"] = {"reason": "max_output_tokens"}
        return 200, result

    with foreign_agent(answer) as app:
        assert collect(tmp_path, app.port, "+agent_name=theirs", "+num_repeats=2", rows=questions(2)) == 0
    assert len(app.aggregated) == 4
    for row in app.aggregated:
        assert row == {
            "_ng_task_index": row["_ng_task_index"],
            "_ng_rollout_index": row["_ng_rollout_index"],
            "agent_ref": {"type": "responses_api_agents", "name": "theirs"},
            "reward": 1.0,
            "extracted_answer": "B",
            "task": {"answers": ["B", None]},
            "response": {
                "usage": {"input_tokens": 3, "output_tokens": 2},
                "incomplete_details": {"reason": "max_output_tokens"},
            },
        }
    (metrics,) = json.loads((tmp_path / "out_aggregate_metrics.json").read_text())
    assert metrics["key_metrics"] == {"pass@1/no_answer": 0.0}


@pytest.mark.parametrize(
    ("rewards", "expected"),
    [
        ([0.0, 1.0, 0.5, 0.5], {"pass@1[avg-of-2]/reward": 50.0, "pass@1/reward": 50.0, "pass@2/reward": 75.0}),
        ([-1.0, 1.0, 1.0, 1.0], {}),
        ([0.0, 1.0, 1.5, 0.0], {}),
    ],
)
def test_pass_at_k_is_added_only_if_all_rewards_are_between_0_and_1(
    tmp_path: Path, rewards: list[float], expected: dict[str, float]
):
    def answer(row: Row, time: int) -> tuple[int, Any]:
        return 200, verified(row, rewards[2 * row["_ng_task_index"] + row["_ng_rollout_index"]])

    with foreign_agent(answer) as app:
        assert collect(tmp_path, app.port, "+agent_name=theirs", "+num_repeats=2", rows=questions(2)) == 0
    (metrics,) = json.loads((tmp_path / "out_aggregate_metrics.json").read_text())
    for found in (metrics["key_metrics"], metrics["agent_metrics"]):
        assert {key: value for key, value in found.items() if key.startswith("pass@")} == expected
    assert metrics["key_metrics"]["mean/reward"] == pytest.approx(sum(rewards) / 4)


def test_a_failed_rollout_has_no_reward_and_is_retried_when_resumed(tmp_path: Path):
    def answer(row: Row, time: int) -> tuple[int, Any]:
        number = int(row["responses_create_params"]["input"].split()[1])
        if number == 1 and time == 1:
            return 500, "KeyError('x')"
        if number == 2 and time == 1:
            return 200, verified(row, 0.0, _ng_failure_class="judge_failed", _ng_failure_judge_error="it is down")
        if number == 3:
            return 200, verified(row, 0.0, _ng_failure_class="bad", _ng_failure_terminal=True)
        return 200, verified(row)

    with foreign_agent(answer) as app:
        collect(tmp_path, app.port, "+agent_name=theirs", rows=questions(5))
        failed = {row["_ng_task_index"]: row for row in lines(tmp_path / "out_failures.jsonl")}
        assert {key: row["_ng_failure_class"] for key, row in failed.items()} == {
            1: "agent_run_error",
            2: "judge_failed",
            3: "bad",
        }
        assert all(row["reward"] is None for row in failed.values())
        assert failed[2]["_ng_failure_cause"] == "it is down"
        assert "KeyError" in failed[1]["_ng_failure_message"]
        assert (failed[1]["_ng_failure_type"], failed[1]["_ng_failure_http_status"]) == ("http_500", 500)
        assert "KeyError('x')" in failed[1]["_ng_failure_response_body"]
        assert len(lines(tmp_path / "out.jsonl")) == 2
        collect(tmp_path, app.port, "+agent_name=theirs", "+resume_from_cache=true", rows=questions(5))
    assert app.calls == {(0, 0): 1, (1, 0): 2, (2, 0): 2, (3, 0): 1, (4, 0): 1}
    rows = lines(tmp_path / "out.jsonl")
    assert sorted(row["_ng_task_index"] for row in rows) == [0, 1, 2, 4]
    assert {row.get("_ng_attempt_index") for row in rows} == {None, 1}
    (metrics,) = json.loads((tmp_path / "out_aggregate_metrics.json").read_text())
    assert metrics["agent_metrics"]["mean/reward"] == 1.0


def test_a_busy_agent_is_a_failed_request_and_no_error_of_the_agent(tmp_path: Path):
    with foreign_agent(lambda row, time: (503, "busy" * 1000)) as app:
        collect(tmp_path, app.port, "+agent_name=theirs", rows=questions(1))
    (failed,) = lines(tmp_path / "out_failures.jsonl")
    assert (failed["_ng_failure_class"], failed["_ng_failure_http_status"]) == ("agent_request_failed", 503)
    assert len(failed["_ng_failure_response_body"]) == 2000


def test_a_row_is_not_retried_after_the_maximum_number_of_attempts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("NEMO_GYM_MAX_ROLLOUT_ATTEMPTS", "2")
    with foreign_agent(lambda row, time: (500, "no")) as app:
        for _ in range(4):
            collect(tmp_path, app.port, "+agent_name=theirs", "+resume_from_cache=true", rows=questions(1))
    assert app.calls == {(0, 0): 2}


def test_a_torn_last_line_is_repaired_when_resumed(tmp_path: Path):
    with foreign_agent(lambda row, time: (200, verified(row))) as app:
        collect(tmp_path, app.port, "+agent_name=theirs", rows=questions(3))
        output = tmp_path / "out.jsonl"
        output.write_bytes(output.read_bytes()[:-20])
        assert collect(tmp_path, app.port, "+agent_name=theirs", "+resume_from_cache=true", rows=questions(3)) == 0
    assert sorted(row["_ng_task_index"] for row in lines(output)) == [0, 1, 2]
    assert sorted(app.calls.values()) == [1, 1, 2]


def test_a_new_run_overwrites_the_files_of_an_earlier_run(tmp_path: Path):
    with foreign_agent(lambda row, time: (500, "no") if time == 1 else (200, verified(row))) as app:
        assert collect(tmp_path, app.port, "+agent_name=theirs", rows=questions(2)) == 1
        assert len(lines(tmp_path / "out_failures.jsonl")) == 2
        assert collect(tmp_path, app.port, "+agent_name=theirs", rows=questions(2)) == 0
    assert len(lines(tmp_path / "out.jsonl")) == 2
    assert not (tmp_path / "out_failures.jsonl").exists()


def test_resuming_with_different_rows_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    with foreign_agent(lambda row, time: (200, verified(row))) as app:
        collect(tmp_path, app.port, "+agent_name=theirs", rows=questions(2))
        for rows in (questions(1), questions(3)):
            assert collect(tmp_path, app.port, "+agent_name=theirs", "+resume_from_cache=true", rows=rows) == 2
            assert f"holds other rows than {tmp_path / 'in.jsonl'} gives now" in capsys.readouterr().err
    assert len(lines(tmp_path / "out.jsonl")) == 2


def test_a_reply_with_no_persist_is_not_written(tmp_path: Path):
    with foreign_agent(lambda row, time: (200, verified(row, _ng_no_persist=True))) as app:
        collect(tmp_path, app.port, "+agent_name=theirs")
    assert (tmp_path / "out.jsonl").read_bytes() == b""
    assert not (tmp_path / "out_failures.jsonl").exists()


@pytest.mark.parametrize("reply", [[], {"reward": 1.0}, {"response": {"output": []}}, {"reward": "1", "response": {}}])
def test_a_reply_that_is_not_a_rollout_is_a_failure(tmp_path: Path, reply: Any):
    with foreign_agent(lambda row, time: (200, reply)) as app:
        assert collect(tmp_path, app.port, "+agent_name=theirs") == 1
    (failure,) = lines(tmp_path / "out_failures.jsonl")
    assert failure["_ng_failure_class"] in ("bad_response", "bad_verdict")
    assert failure["reward"] is None


def test_a_row_is_sent_to_the_agent_it_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    named = {**questions(1)[0], "agent_ref": {"name": "theirs"}}
    with foreign_agent(lambda row, time: (200, verified(row))) as app:
        assert collect(tmp_path, app.port, "+agent_name=missing_agent", rows=[named]) == 0
        assert collect(tmp_path, app.port, rows=[named, *questions(1)]) == 2
        assert "in.jsonl:2: the row names no agent" in capsys.readouterr().err
        assert collect(tmp_path, app.port, "+agent_name=their") == 2
        assert "no agent their is running. Did you mean theirs?" in capsys.readouterr().err
    assert app.rows[0]["agent_ref"] == {"type": "responses_api_agents", "name": "theirs"}


@pytest.mark.parametrize(
    ("argument", "said"),
    [
        ("+num_repeat=2", "there is no option num_repeat. Did you mean num_repeats?"),
        ("+num_repeats=0", "num_repeats 0 is not a number from 1 on"),
        ("+limit=none", "limit 'none' is not a number from 1 on"),
        ("+responses_create_params=[1]", "responses_create_params must be a mapping"),
        ("+prompt_config=a.yaml", "there is no prompt config a.yaml"),
        ("+output_jsonl_fpath=out", "output_jsonl_fpath out must end with .jsonl"),
        ("+limit=2", "Start servers with: gym env start"),
    ],
)
def test_a_wrong_option_is_one_line_that_says_what_to_type(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], argument: str, said: str
):
    assert collect(tmp_path, 1, argument) == 2
    printed = capsys.readouterr().err
    assert printed.startswith("error: ")
    assert said in printed
    assert printed.count("\n") == 1


def test_each_agent_may_have_its_own_repeats_and_each_repeat_a_seed(tmp_path: Path):
    rows = [{**row, "agent_ref": {"name": name}} for row, name in zip(questions(2), "ab", strict=True)]
    rows[1]["responses_create_params"]["metadata"] = {"extra_body": '{"top_k": 3}', "other": "x"}
    path = tmp_path / "in.jsonl"
    path.write_bytes(b"\n".join(encode(row) for row in rows))
    expansion = Expansion(repeats={"b": 2, "_default": 1}, add_seed=True)
    made = list(materialized(path, expansion, {"a": "", "b": ""}))
    assert [row["agent_ref"]["name"] for row in made] == ["a", "b", "b"]
    bodies = [json.loads(row["responses_create_params"]["metadata"]["extra_body"]) for row in made]
    assert bodies == [{"seed": 0}, {"top_k": 3, "seed": 0}, {"top_k": 3, "seed": 1}]
    assert made[1]["responses_create_params"]["metadata"]["other"] == "x"


def test_a_rows_own_task_index_is_kept(tmp_path: Path):
    path = tmp_path / "in.jsonl"
    path.write_bytes(b"\n".join(encode({**row, "_ng_task_index": 7}) for row in questions(2)))
    made = list(materialized(path, Expansion(agent="a"), {"a": ""}))
    assert [(row["_ng_task_index"], row["_ng_rollout_index"]) for row in made] == [(7, 0), (7, 1)]


@pytest.mark.parametrize("line", ["{", "[]", "{}", '{"responses_create_params": 1}'])
def test_the_error_for_a_bad_row_names_its_line(tmp_path: Path, line: str):
    path = tmp_path / "in.jsonl"
    path.write_text(f'{{"responses_create_params": {{"input": "x"}}}}\n{line}\n')
    with pytest.raises(UserError, match=r"in.jsonl:2: "):
        list(materialized(path, Expansion(agent="a"), {"a": ""}))


async def test_running_servers_are_found_through_the_head():
    with served(COUNTER) as serving:
        running = await find_running(serving.head_url)
    assert set(running.agents) == {AGENT}
    assert set(running.addresses["responses_api_models"]) == {"policy_model"}
    assert head_url({"head_server": {"host": "0.0.0.0", "port": 5}}) == "http://127.0.0.1:5"
    assert head_url({}) == "http://127.0.0.1:11000"


@pytest.mark.parametrize("repeats", ["null", "{theirs: null}", "{_default: null}"])
def test_num_repeats_null_is_one(tmp_path: Path, repeats: str):
    with foreign_agent(lambda row, attempt: (200, verified(row))) as agent:
        assert collect(tmp_path, agent.port, "+agent_name=theirs", f"+num_repeats={repeats}") == 0
    assert len(lines(tmp_path / "out.jsonl")) == 1


def test_the_example_data_of_an_environment_is_found_by_its_documented_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    path = f"resources_servers/{COUNTER}/data/example.jsonl"
    with served(COUNTER) as serving:
        port = int(serving.head_url.rpartition(":")[2])
        named = [f"+agent_name={AGENT}", f"+input_jsonl_fpath={path}", "+output_jsonl_fpath=results/out.jsonl"]
        with pytest.raises(SystemExit) as ended:
            ng_collect_rollouts([*named, "+limit=2", f"++head_server.port={port}"])
    assert not ended.value.code
    assert len(lines(tmp_path / "results" / "out.jsonl")) == 2
    assert (tmp_path / "results" / "out_aggregate_metrics.json").is_file()


def test_a_file_of_that_path_in_the_working_directory_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    mine = tmp_path / "resources_servers" / COUNTER / "data" / "example.jsonl"
    mine.parent.mkdir(parents=True)
    mine.write_bytes(encode({**COUNTER_ROW, "mine": 7}) + b"\n")
    with foreign_agent(lambda row, attempt: (200, verified(row))) as agent:
        named = [f"+input_jsonl_fpath=resources_servers/{COUNTER}/data/example.jsonl", "+output_jsonl_fpath=out.jsonl"]
        with pytest.raises(SystemExit):
            ng_collect_rollouts([*named, "+agent_name=theirs", f"++head_server.port={agent.port}"])
    assert [row["mine"] for row in agent.rows] == [7]


@pytest.mark.parametrize("sent", [{"mask_sample": True}, {"instance_config": {"mask_sample": True, "id": 7}}])
def test_a_masked_rollout_says_so_in_both_places(tmp_path: Path, sent: Row, capsys: pytest.CaptureFixture[str]):
    with foreign_agent(lambda row, attempt: (200, verified(row, **sent))) as agent:
        assert collect(tmp_path, agent.port, "+agent_name=theirs") == 0
    (row,) = lines(tmp_path / "out.jsonl")
    assert row["mask_sample"] is True
    assert row["instance_config"] == {**sent.get("instance_config", {}), "mask_sample": True}
    assert "0 completed, 0 failed, 1 masked" in capsys.readouterr().out


def test_the_status_of_servers_without_a_health_route_is_that_of_their_root(capsys: pytest.CaptureFixture[str]):
    with foreign_agent(lambda row, attempt: (200, verified(row))) as agent:
        head_port = agent.port
        with foreign_agent(lambda row, attempt: (200, verified(row))) as bare:
            del bare.routes["GET", "/health"]
            agent.port = bare.port
            with pytest.raises(SystemExit) as ended:
                ng_status([f"++head_server.port={head_port}", "--json"])
    assert not ended.value.code
    (server,) = json.loads(capsys.readouterr().out)["servers"]
    assert (server["name"], server["status"]) == ("theirs", "ok")


async def test_a_program_collects_a_file_by_its_configuration(tmp_path: Path):
    rows, output = tmp_path / "rows.jsonl", tmp_path / "rollouts.jsonl"
    rows.write_text(json.dumps({"responses_create_params": {"input": "hi"}}) + "\n")
    config = RolloutCollectionConfig(
        agent_name="theirs", input_jsonl_fpath=str(rows), output_jsonl_fpath=str(output), num_repeats=2
    )

    def answers(row: Row, call: int) -> tuple[int, Any]:
        failure = {"_ng_failure_class": "judge_failed"} if row["_ng_rollout_index"] else {}
        return 200, {**row, "reward": 1.0, "response": {"output": []}, **failure}

    with foreign_agent(answers) as app:
        head = BaseServerConfig(host="127.0.0.1", port=app.port)
        results = await RolloutCollectionHelper().run_from_config(config, head)
    assert [(result["reward"], result["_ng_rollout_index"]) for result in results] == [(1.0, 0)]
    (failure,) = map(json.loads, failures_path_for(output).read_text().splitlines())
    assert (failure["_ng_failure_class"], failure["reward"]) == ("judge_failed", None)
    assert json.loads(aggregate_metrics_path_for(output).read_text())[0]["agent_ref"] == {"name": "theirs"}
