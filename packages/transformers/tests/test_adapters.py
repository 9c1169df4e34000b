"""Adapters of a vLLM server: a call names the adapter of its version, and the example trains while it generates."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import Any

import pytest
import tiny_transformers
from ludus_transformers.adapters import AdapterPolicy
from servers import running
from train_programs import EXAMPLES, Programs
from vllm_stub import VllmStub

import ludus

Body = dict[str, Any]


class AdapterServer(VllmStub):
    """Holds adapters, refuses those that it does not hold, and notes which one every answer was asked of."""

    def __init__(self, tokenizer: Any) -> None:
        super().__init__(tokenizer, numbers)
        self.held: dict[str, str] = {"policy": ""}
        self.names: list[str] = []

    def _routes(self) -> dict[str, Callable[[Body], Body]]:
        return {
            **super()._routes(),
            "/v1/load_lora_adapter": lambda body: self.held.update({body["lora_name"]: body["lora_path"]}) or {},
            "/v1/unload_lora_adapter": lambda body: {"was": self.held.pop(body["lora_name"])},
        }

    def chat(self, body: Body) -> Body:
        return super().chat(self.known(body))

    def generate(self, body: Body) -> Body:
        return super().generate(self.known(body))

    def known(self, body: Body) -> Body:
        if body["model"] not in self.held:
            raise ValueError(f"no adapter {body['model']}")
        self.names.append(body["model"])
        return body


def numbers(random: Random, tools: list[Body]) -> tuple[str, bool]:
    """Now and then an answer that earns something."""
    return random.choice(["1 2 3 4 5", "I do not know."]), True


def test_a_call_names_the_adapter_of_the_version_that_it_records() -> None:
    with running(AdapterServer(tiny_transformers.tokenizer("tools"))) as server:
        server.held |= {"trl-policy-v3": "", "trl-policy-v4": ""}
        model = AdapterPolicy(AdapterPolicy.Config(base_url=server.url, model="policy"))
        for version, name in ((0, "policy"), (3, "trl-policy-v3"), (4, "trl-policy-v4")):
            server.names.clear()
            model.policy_version = version
            result = ludus.collect("example_session_state_mgmt", model=model, limit=2, tokens=True)
            assert set(server.names) == {name}
            calls = [call for rollout in result.rollouts for call in rollout.calls]
            assert {call["policy_version"] for call in calls} == {str(version)}
            assert [len(list(rollout.sequences())) for rollout in result.rollouts] == [1, 1]


@pytest.fixture(scope="module")
def programs() -> Iterator[Programs]:
    for name in ("peft", "trl"):
        if find_spec(name) is None:
            pytest.skip(f"needs {name}: pip install 'ludus-transformers[train]'")
    with Programs() as programs:
        yield programs


@pytest.mark.slow
@pytest.mark.parametrize("ahead", [0, 1])
def test_the_example_trains_on_groups_that_are_as_old_as_it_says(
    ahead: int, programs: Programs, tmp_path: Path
) -> None:
    folder, output = tmp_path / "weights", tmp_path / "run"
    words = tiny_transformers.tokenizer("tools")
    tiny_transformers.llama(max_position_embeddings=4096).save_pretrained(folder)
    words.save_pretrained(folder)
    options = "--environment sort_numbers --steps 3 --groups 2 --group-size 4 --lora 4 --keep-every 2 --held-out 4 "
    options += "--samples 2 --train-tasks 8 --learning-rate 0.01" + " --control" * (1 - ahead)
    with running(AdapterServer(words)) as server:
        places = ["--model", folder, "--server", server.url, "--ahead", ahead, "--output", output]
        done = programs.run("overlap.py", *options.split(), *map(str, places))
        assert done.returncode == 0, done.stderr
        asked = [name for name in server.names if name.startswith("run-0-v")]
    measured = json.loads((output / "metrics.json").read_text())
    assert [step["step"] for step in measured["steps"]] == [1, 2, 3]
    assert asked[0] == "run-0-v1"
    assert set(asked) <= {f"run-0-v{version}" for version in (1, 2, 3, 4)}
    assert all(0 <= step["behind"] <= ahead for step in measured["steps"])
    assert any(step["norm"] > 0 for step in measured["steps"])
    assert [kept["step"] for kept in measured["kept"]] == [0, 2, 3]
    tested = [kept["agents"]["tools"] for kept in measured["kept"]]
    assert all(agent["greedy_failed"] == agent["sampled_failed"] == 0 for agent in tested)
    saved = [(output / kept["folder"] / "adapter_model.safetensors").read_bytes() for kept in measured["kept"]]
    assert len(set(saved)) == 3, "the adapter changed"


class TrainerServer(AdapterServer):
    """Also has the routes with which TRL's asynchronous trainer stops, reads and continues a server."""

    async def respond(self, path: str, body: Body, writer: Any) -> bool:
        return await super().respond(path.partition("?")[0], body, writer)

    def _routes(self) -> dict[str, Callable[[Body], Body]]:
        described = {"model_config": {"dtype": "torch.float32"}, "parallel_config": {"data_parallel_size": 1}}
        described |= {"lora_config": {"max_lora_rank": 8, "max_loras": 4}}
        return {
            **super()._routes(),
            **dict.fromkeys(("/health", "/pause", "/resume"), lambda body: {}),
            "/server_info": lambda body: {"vllm_config": described},
            "/v1/models": lambda body: {"data": [{"id": "policy", "max_model_len": 4096}]},
        }


#: TRL asks for the name of the GPU, to know how fast it could be.
WITHOUT_A_GPU = """
import sys
import torch
torch.cuda.get_device_name = lambda device: "none"
sys.path.insert(0, {examples!r})
import overlap_trl
overlap_trl.main()
"""


@pytest.mark.slow
def test_trls_asynchronous_trainer_trains_on_what_the_adapters_wrote(programs: Programs, tmp_path: Path) -> None:
    folder, output = tmp_path / "weights", tmp_path / "run"
    words = tiny_transformers.tokenizer("tools")
    tiny_transformers.llama(max_position_embeddings=4096).save_pretrained(folder)
    words.save_pretrained(folder)
    program = tmp_path / "without_a_gpu.py"
    program.write_text(WITHOUT_A_GPU.format(examples=str(EXAMPLES)))
    options = "--environment sort_numbers --steps 3 --groups 2 --group-size 4 --lora 4 --micro-batch 4 --train-tasks 8"
    with running(TrainerServer(words)) as server:
        places = ["--model", str(folder), "--server", server.url.removesuffix("/v1"), "--output", str(output)]
        done = programs.run(str(program), *options.split(), "--plain-attention", *places)
        assert done.returncode == 0, done.stderr
        asked = set(server.names)
    measured = json.loads((output / "metrics.json").read_text())
    steps = [step for step in measured["steps"] if "loss" in step]
    assert [step["step"] for step in steps] == [1, 2, 3]
    assert asked <= {f"trl-policy-v{version}" for version in (1, 2, 3, 4)}
    assert len(asked) > 1, "an update was published and used"
    assert all(step["sample/staleness_max"] <= 2 and step["sample/time_in_queue_s"] >= 0 for step in steps)
    assert any(step["grad_norm"] > 0 for step in steps)
    assert measured["rollouts"]["completed"] >= 24
    assert all(step["batch/samples_per_step"] == pytest.approx(8) for step in steps)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "options", "told"),
    [
        ("overlap_trl.py", "--model nowhere --plain-attention --server http://127.0.0.1:9", "does not answer"),
        ("overlap_trl.py", "--model nowhere --micro-batch 7", "--micro-batch must divide the 48 sequences of a step"),
        ("overlap.py", "--model nowhere --only measure --output nowhere", "cannot read nowhere/metrics.json"),
        ("overlap_plot.py", "nowhere.json", "cannot read nowhere.json"),
        ("overlap_plot.py", "{results}/additions-seed1.json", "is of no run of overlap.py"),
        ("overlap_plot.py", "{results}/transfer-additions-text-seed1.json", "with several agents"),
    ],
)
def test_a_mistake_is_told_in_one_line(script: str, options: str, told: str, programs: Programs) -> None:
    done = programs.run(script, *options.format(results=EXAMPLES / "results").split())
    assert done.returncode != 0
    assert told in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_server_without_adapters_is_told_in_one_line(programs: Programs) -> None:
    with running(AdapterServer(tiny_transformers.tokenizer("tools"))) as server:
        url = server.url.removesuffix("/v1")
        done = programs.run("overlap_trl.py", "--model", "nowhere", "--plain-attention", "--server", url)
    assert "VLLM_SERVER_DEV_MODE=1" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
