"""`gym eval reverify` asks a server on disk whether it can judge stored rollouts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from gym_commands import (
    rewards,
    run_of,
    typed,
)
from hosted_servers import COUNTER, counter_rows, row, write_server

pytest.importorskip("fastapi", reason="needs FastAPI: pip install 'ludus-nemo-gym[servers]'")


pytestmark = pytest.mark.usefixtures("in_a_checkout")


def reverified(name: str, *flags: str, isolate: bool = False) -> int:
    inputs = "--inputs r_materialized_inputs.jsonl --rollouts r.jsonl --output again.jsonl"
    own = f"++isolate_own_code={str(isolate).lower()}"
    return typed(f"gym eval reverify --resources-server {name} {inputs} {own} {' '.join(flags)}")


def test_rollouts_of_a_stateless_server_are_judged_without_their_tools(tmp_path: Path) -> None:
    code = """
    from nemo_gym.base_resources_server import ReverifyMode


    class Config(BaseResourcesServerConfig):
        REVERIFY_MODE = ReverifyMode.STATELESS


    class VerifyRequest(BaseVerifyRequest):
        wanted: str


    class Server(SimpleResourcesServer):
        config: Config

        def setup_webserver(self) -> FastAPI:
            app = super().setup_webserver()
            app.post("/increment_counter")(self.increment)
            return app

        async def increment(self) -> dict:
            with open("calls.txt", "a") as file:
                file.write("called ")
            return {}

        async def verify(self, body: VerifyRequest) -> BaseVerifyResponse:
            return BaseVerifyResponse(**body.model_dump(), reward=float(body.wanted in body.response.output_text))
    """
    folder = write_server(tmp_path, "stateless", code, [row("?", "increment_counter", wanted="never")])
    assert run_of("stateless", isolate=True) == 0
    assert rewards() == [0.0]
    inputs = Path("r_materialized_inputs.jsonl")
    inputs.write_text(inputs.read_text().replace("never", "done"))
    assert reverified("stateless", isolate=True) == 0
    assert rewards("again.jsonl") == [1.0]
    assert (folder / "calls.txt").read_text() == "called "


def test_a_server_that_does_not_say_whether_it_can_judge_gets_its_tool_calls_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_server(tmp_path, "counter", COUNTER, counter_rows(2))
    assert run_of("counter") == 0
    capsys.readouterr()
    assert reverified("counter") == 0
    assert rewards("again.jsonl") == [1.0, 1.0]
    assert "note: counter does not say whether it can judge a stored rollout" in capsys.readouterr().err
    (agent,) = json.loads(Path("again_aggregate_metrics.json").read_text())
    assert agent["key_metrics"]["mean/reward"] == 1.0


def test_a_server_that_cannot_judge_again_is_refused_unless_forced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mode = '\n    async def get_reverify_mode(self) -> str:\n        return "unsupported"\n'
    fields = "    counters: dict[str, int] = Field(default_factory=dict)\n"
    write_server(tmp_path, "counter", COUNTER.replace(fields, fields + mode), counter_rows(1))
    assert run_of("counter") == 0
    capsys.readouterr()
    assert reverified("counter") == 2
    printed = capsys.readouterr().err
    assert "error: counter says that it cannot judge a stored rollout: unsupported. Add --force" in printed
    assert reverified("counter", "--force") == 0
    assert rewards("unsafe_again.jsonl") == [1.0]
