"""NeMo RL's unchanged code can drive Ludus through `nemo_gym`, and its assertions about rollouts hold."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import math
import os
import pickle
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from policy_server import SAMPLING, Policy
from servers import running
from serving import COUNTER, COUNTER_ROW, Web, served
from waiting import CEILING, until

from ludus.errors import UserError
from ludus.serve.serving import Serving

SOURCE = Path(__file__).parents[1] / "src"
MODEL = "responses_api_models/vllm_model/configs/vllm_model_for_training.yaml"
AGENT = f"{COUNTER}_simple_agent"
Row = dict[str, Any]


@pytest.fixture(scope="module")
def nemo_gym() -> SimpleNamespace:
    """The names that NeMo RL imports."""
    cli, collection, utils = (
        importlib.import_module(f"nemo_gym.{name}") for name in ("cli", "rollout_collection", "server_utils")
    )
    return SimpleNamespace(
        GlobalConfigDictParserConfig=cli.GlobalConfigDictParserConfig,
        RunHelper=cli.RunHelper,
        RolloutCollectionHelper=collection.RolloutCollectionHelper,
        HEAD_SERVER_KEY_NAME=utils.HEAD_SERVER_KEY_NAME,
        BaseServerConfig=utils.BaseServerConfig,
    )


@pytest.fixture(scope="module")
def policies() -> Iterator[list[Policy]]:
    with running(Policy()) as one, running(Policy()) as two:
        yield [one, two]  # type: ignore[list-item]


def free_port() -> int:
    """A free port below the range that the system assigns to port 0."""
    for port in range(20_000 + os.getpid() % 10_000, 32_000):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("0.0.0.0", port))
            return port
    raise AssertionError("no port is free")


def configuration(gym: SimpleNamespace, policies: list[Policy], *environments: str, **more: Any) -> Row:
    """The dictionary that NeMo RL passes."""
    names = environments or (COUNTER,)
    return {
        "config_paths": [MODEL, *(f"resources_servers/{name}/configs/{name}.yaml" for name in names)],
        "policy_model_name": "policy",
        "policy_api_key": "dummy_key",
        "policy_base_url": [each.url for each in policies],
        "default_host": "127.0.0.1",
        "port_range_low": 5000,
        "port_range_high": 5999,
        "global_aiohttp_connector_limit_per_host": 16384,
        "global_aiohttp_connector_limit": 65536,
        "ray_head_node_address": "127.0.0.1:6379",
        gym.HEAD_SERVER_KEY_NAME: {"host": "0.0.0.0", "port": free_port()},
        "policy_model": {"responses_api_models": {"vllm_model": {"retries": 0}}},
        **more,
    }


class Trainer:
    """The calls that NeMo RL makes, in its order."""

    def __init__(self, gym: SimpleNamespace, given: Any) -> None:
        self.port = given[gym.HEAD_SERVER_KEY_NAME]["port"]
        self.run_helper = gym.RunHelper()
        self.run_helper.start(
            global_config_dict_parser_config=gym.GlobalConfigDictParserConfig(
                dotenv_path=Path("nemo_gym_env.yaml").absolute(),
                initial_global_config_dict=given,
                skip_load_from_cli=True,
            )
        )
        self.head_server_config = gym.BaseServerConfig(host="127.0.0.1", port=self.port)
        self.helper = gym.RolloutCollectionHelper()

    async def rollouts(self, rows: list[Row]) -> list[tuple[Row, Row]]:
        """All rollouts, in completion order."""
        self.run_helper.poll()
        found = []
        for task in self.helper.run_examples(examples=rows, head_server_config=self.head_server_config):
            row, result = await task
            found.append((row, result))
        return found

    async def failure(self, row: Row) -> Any:
        """The error that awaiting a rollout raises."""
        (task,) = self.helper.run_examples(examples=[row], head_server_config=self.head_server_config)
        with pytest.raises(Exception, match=".") as caught:
            await task
        return caught.value


@contextlib.contextmanager
def training(gym: SimpleNamespace, given: Any) -> Iterator[Trainer]:
    trainer = Trainer(gym, given)
    try:
        yield trainer
    finally:
        trainer.run_helper.shutdown()


@pytest.fixture(scope="module")
def trainer(nemo_gym: SimpleNamespace, policies: list[Policy]) -> Iterator[Trainer]:
    given = configuration(nemo_gym, policies, COUNTER, "example_tool_call_multireward", "genrm_compare")
    given["genrm_compare"] = {"resources_servers": {"genrm_compare": {}}}
    with training(nemo_gym, given) as started:
        yield started


def a_row(number: int, text: str = "add 3", **fields: Any) -> Row:
    """A row as NeMo RL sends it."""
    params = {"input": [{"role": "user", "content": f"{text} (row {number})"}], "max_output_tokens": 512, **SAMPLING}
    agent = {"type": "responses_api_agents", "name": AGENT}
    return {**COUNTER_ROW, "responses_create_params": params, "agent_ref": agent, "_rowidx": number, **fields}


def turns(result: Row) -> list[list[int]]:
    """The token ids of each turn, context and policy alternating, with the assertions that NeMo RL makes."""
    seen: list[int] = []
    found = []
    for item in result["response"]["output"]:
        if not item.get("generation_token_ids"):
            assert not any(key in item for key in ("prompt_token_ids", "generation_log_probs"))
            continue
        prompt, generated, logprobs = (
            item.pop(key) for key in ("prompt_token_ids", "generation_token_ids", "generation_log_probs")
        )
        assert prompt[: len(seen)] == seen, "Non-contiguous messages found!"
        assert len(generated) == len(logprobs)
        assert all(math.isfinite(each) for each in logprobs)
        found += [prompt[len(seen) :], generated]
        seen = prompt + generated
    return found


async def test_rows_come_back_with_results_that_nemo_rl_can_train_on(trainer: Trainer):
    rows = [a_row(number, expected_count=4 if number % 2 else 5) for number in range(6)]
    before = json.loads(json.dumps(rows))
    found = await trainer.rollouts(rows)
    assert rows == before  # the trainer's rows are not modified
    assert sorted(row["_rowidx"] for row, _ in found) == list(range(6))
    for row, result in found:
        assert row is rows[row["_rowidx"]]
        assert (result["_rowidx"], result["agent_ref"]["name"]) == (row["_rowidx"], AGENT)
        assert result["responses_create_params"] == row["responses_create_params"]
        assert result["reward"] == float(row["_rowidx"] % 2)
        assert result["mask_sample"] is False
        assert "instance_config" not in result
        kinds = [item["type"] for item in result["response"]["output"]]
        assert kinds == ["function_call", "function_call_output", "message"]
        context, called, more, said = turns(result)
        assert min(called + said) == 2
        assert max(context + more) < 1000 < max(called)
        assert {key for key, value in result.items() if isinstance(value, (bool, int, float))} == {
            "reward", "mask_sample", "_rowidx", "initial_count", "expected_count",
        }  # fmt: skip


async def test_requests_to_the_policy_carry_its_token_ids_back(trainer: Trainer, policies: list[Policy]):
    ((_, result),) = await trainer.rollouts([a_row(77, "add 3 once more")])
    bodies = [body for each in policies for body in each.bodies if "once more (row 77)" in str(body["messages"][0])]
    assert len(bodies) == 2
    assert {body["model"] for body in bodies} == {"policy"}
    assert all(body["return_tokens_as_token_ids"] and body["top_logprobs"] == 0 for body in bodies)
    marked = [each for each in bodies[1]["messages"] if "generation_token_ids" in each]
    assert [each["role"] for each in marked] == ["assistant"]
    assert marked[0]["generation_token_ids"] == result["response"]["output"][0]["generation_token_ids"]


async def test_a_rollout_uses_one_endpoint(trainer: Trainer, policies: list[Policy]):
    await trainer.rollouts([a_row(number, "stay") for number in range(20)])
    homes = [{str(body["messages"][0]) for body in each.bodies if "stay" in str(body)} for each in policies]
    assert all(homes)
    assert not homes[0] & homes[1]


async def test_rollouts_come_in_completion_order(trainer: Trainer, monkeypatch: pytest.MonkeyPatch):
    found: list[int] = []
    monkeypatch.setattr(Policy, "slow", lambda: len(found) < 2)
    for task in trainer.helper.run_examples([a_row(0, "slow"), a_row(1), a_row(2)], trainer.head_server_config):
        found.append((await task)[0]["_rowidx"])
    assert found[-1] == 0


async def test_reward_components_that_sum_to_the_reward_are_kept(trainer: Trainer):
    row = a_row(0, agent_ref={"name": "example_tool_call_multireward_simple_agent"})
    row["expected_call"] = {"name": "increment_counter", "arguments": {"count": 4}}
    row["responses_create_params"]["tools"] = [{"type": "function", "name": "increment_counter", "parameters": {}}]
    ((_, result),) = await trainer.rollouts([row])
    assert result["reward_components"] == {"correctness": 0.0, "schema_valid": 1.0, "format": 1.0}
    assert math.isclose(math.fsum(result["reward_components"].values()), result["reward"], rel_tol=1e-5)


def test_components_that_do_not_sum_to_the_reward_and_empty_ids_are_left_out(nemo_gym: SimpleNamespace):
    from nemo_gym._results import result_of

    item = {"type": "message", "prompt_token_ids": [1], "generation_token_ids": [], "generation_log_probs": []}
    reply = {"reward": 1.0, "reward_components": {"a": 1.0, "b": 1.0}, "response": {"output": [item]}}
    assert result_of(reply) == {"reward": 1.0, "response": {"output": [{"type": "message"}]}, "mask_sample": False}
    parts = {"a": 0.25, "b": 0.75}
    assert result_of({"reward": 1.0, "reward_components": parts, "response": {}})["reward_components"] == parts


async def test_a_prompt_that_does_not_continue_the_last_turn_masks_the_rollout(trainer: Trainer):
    ((_, result),) = await trainer.rollouts([a_row(0, "break")])
    assert result["instance_config"] == {"mask_sample": True}
    assert "does not continue" in result["mask"]
    assert isinstance(result["reward"], float)
    assert len(turns(result)) == 2  # of the first call; the later prompts do not continue it


async def test_a_rollout_without_ids_is_masked_and_keeps_its_reward(trainer: Trainer):
    ((_, result),) = await trainer.rollouts([a_row(0, "no ids")])
    assert result["instance_config"]["mask_sample"] is True
    assert result["reward"] == 1.0
    assert turns(result) == []


async def test_a_row_may_name_the_environment_of_an_agent_as_ludus_data_prepare_writes_it(trainer: Trainer):
    ((_, result),) = await trainer.rollouts([a_row(0, agent_ref={"name": COUNTER})])
    assert result["reward"] == 1.0


@pytest.mark.parametrize(
    ("row", "status"),
    [
        (a_row(0, "status 500"), 500),
        (a_row(0, "status 429"), 429),
        (a_row(0, agent_ref={"name": "missing_agent"}), 404),
        (a_row(0, agent_ref=None), 422),
        (a_row(0, initial_count="many"), 422),
        (a_row(0, agent_ref={"name": "genrm_simple_agent"}), 400),
    ],
    ids=["policy-fails", "policy-busy", "no-such-agent", "no-agent", "bad-row", "judged-in-groups"],
)
async def test_a_failed_rollout_raises_an_error_with_its_status(trainer: Trainer, row: Row, status: int):
    error = await trainer.failure(row)
    assert error.status == status
    body = json.loads(error.response_content)
    assert "detail" in body
    assert "reward" not in body
    again = pickle.loads(pickle.dumps(error))  # Ray pickles errors of actors
    assert (again.status, again.response_content, str(again)) == (status, error.response_content, str(error))


async def test_a_failure_does_not_affect_other_rollouts(trainer: Trainer, monkeypatch: pytest.MonkeyPatch):
    rows = [a_row(0, "status 500"), a_row(1), a_row(2, "slow")]
    statuses, rewards = [], []
    monkeypatch.setattr(Policy, "slow", lambda: not statuses)
    for task in trainer.helper.run_examples(rows, trainer.head_server_config):
        try:
            rewards.append((await task)[1]["reward"])
        except Exception as error:
            statuses.append(getattr(error, "status", None))
    assert (statuses, rewards) == ([500], [1.0, 1.0])


def test_the_head_demands_the_token_of_this_run(trainer: Trainer):
    url = f"http://127.0.0.1:{trainer.port}"
    assert Web(url).get("/global_config_dict_yaml").status == 401
    reply = Web(url, token=os.environ["LUDUS_TOKEN"]).get("/global_config_dict_yaml")
    assert f"{AGENT}:" in reply.json()
    assert "dummy_key" not in reply.text


def test_shutdown_restores_the_environment_variables(nemo_gym: SimpleNamespace, policies: list[Policy]):
    before = dict(os.environ)
    helper = nemo_gym.RunHelper()
    given = configuration(nemo_gym, policies)
    helper.start(nemo_gym.GlobalConfigDictParserConfig(None, given, True))
    helper.poll()
    assert Web(f"http://127.0.0.1:{given['head_server']['port']}").get("/health").status == 200
    helper.shutdown()
    helper.shutdown()
    assert dict(os.environ) == before
    with pytest.raises(ConnectionRefusedError):
        Web(f"http://127.0.0.1:{given['head_server']['port']}").get("/health")


async def test_an_omegaconf_dictionary_is_accepted(nemo_gym: SimpleNamespace, policies: list[Policy]):
    omegaconf = pytest.importorskip("omegaconf")
    with training(nemo_gym, omegaconf.DictConfig(configuration(nemo_gym, policies))) as trainer:
        ((_, result),) = await trainer.rollouts([a_row(0)])
    assert result["reward"] == 1.0


def test_a_dry_run_checks_and_starts_nothing(nemo_gym: SimpleNamespace, policies: list[Policy]):
    before = dict(os.environ)
    given = configuration(nemo_gym, policies, dry_run=True)
    Trainer(nemo_gym, given).run_helper.poll()
    assert dict(os.environ) == before
    with pytest.raises(ConnectionRefusedError):
        Web(f"http://127.0.0.1:{given['head_server']['port']}").get("/health")
    with pytest.raises(Exception, match="no environment nothing_like_it"):
        Trainer(nemo_gym, configuration(nemo_gym, policies, "nothing_like_it"))


def test_start_raises_if_a_server_cannot_start(nemo_gym: SimpleNamespace, policies: list[Policy]):
    before = dict(os.environ)
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))
        taken.listen()
        given = configuration(nemo_gym, policies, head_server={"host": "0.0.0.0", "port": taken.getsockname()[1]})
        with pytest.raises(Exception, match="the head cannot listen"):
            Trainer(nemo_gym, given)
    assert dict(os.environ) == before


def test_poll_raises_once_the_servers_have_stopped(
    nemo_gym: SimpleNamespace, policies: list[Policy], monkeypatch: pytest.MonkeyPatch
):
    died = threading.Event()

    async def until_failed(serving: Serving) -> None:
        await asyncio.to_thread(died.wait)
        raise UserError("worker 0 keeps dying")

    monkeypatch.setattr(Serving, "until_failed", until_failed)
    before = set(threading.enumerate())
    with training(nemo_gym, configuration(nemo_gym, policies)) as trainer:
        trainer.run_helper.poll()
        (thread,) = (each for each in set(threading.enumerate()) - before if each.name == "ludus-servers")
        died.set()
        thread.join(CEILING)
        with pytest.raises(RuntimeError, match="the servers have stopped") as caught:
            trainer.run_helper.poll()
    assert "keeps dying" in str(caught.value.__cause__)


async def test_shutdown_ends_rollouts_with_status_503(nemo_gym: SimpleNamespace, policies: list[Policy]):
    with training(nemo_gym, configuration(nemo_gym, policies)) as trainer:
        tasks = list(trainer.helper.run_examples([a_row(0, "hang")], trainer.head_server_config))
        waiting = asyncio.ensure_future(tasks[0])
        await asyncio.to_thread(until, lambda: any("hang" in str(each.bodies) for each in policies))
        await asyncio.to_thread(trainer.run_helper.shutdown)
        with pytest.raises(Exception, match="shut down|stopping") as caught:
            await waiting
    assert getattr(caught.value, "status", None) == 503


async def test_agents_of_another_process_are_found_through_their_head(nemo_gym: SimpleNamespace):
    with served(COUNTER) as serving:
        config = nemo_gym.BaseServerConfig(host="127.0.0.1", port=serving.plan.head_port)
        rows = [a_row(number) for number in range(3)]
        found = [await task for task in nemo_gym.RolloutCollectionHelper().run_examples(rows, config)]
        assert sorted((row["_rowidx"], result["reward"]) for row, result in found) == [(n, 1.0) for n in range(3)]
    gone = nemo_gym.RolloutCollectionHelper().run_examples([a_row(0)], config)
    with pytest.raises(Exception, match="cannot reach") as caught:
        await next(gone)
    assert getattr(caught.value, "status", None) == 503


async def test_several_worker_processes_can_play(nemo_gym: SimpleNamespace, policies: list[Policy]):
    more = {COUNTER: {"resources_servers": {COUNTER: {"num_workers": 2}}}}
    with training(nemo_gym, configuration(nemo_gym, policies, **more)) as trainer:
        found = await trainer.rollouts([a_row(number) for number in range(8)])
        assert [result["reward"] for _, result in found] == [1.0] * 8
        assert all(len(turns(result)) == 4 for _, result in found)
