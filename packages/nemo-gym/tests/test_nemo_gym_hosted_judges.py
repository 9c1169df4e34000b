"""A server that asks a judge gets a model of Ludus, and a dead judge gives no reward."""

from __future__ import annotations

from pathlib import Path

import pytest
from hosted_collections import collect, rewards
from hosted_servers import row, write_server

from ludus import UserError

pytest.importorskip("fastapi", reason="needs FastAPI: pip install 'ludus-nemo-gym[servers]'")


JUDGED = """
class Config(BaseResourcesServerConfig):
    judge_model_server: ModelServerRef
    judge_responses_create_params: NeMoGymResponseCreateParamsNonStreaming


class Server(SimpleResourcesServer):
    config: Config

    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        params = self.config.judge_responses_create_params.model_copy(deep=True)
        params.input = [{"role": "user", "content": "Is this right: " + body.response.output_text}]
        verdict = await call_judge(
            self.server_client,
            server_name=self.config.judge_model_server.name,
            url_path="/v1/responses",
            json=params,
            response_model=NeMoGymResponse,
        )
        return BaseVerifyResponse(**body.model_dump(), reward=float("[[A=B]]" in verdict.output_text))
"""

JUDGE = {
    "judge_model_server": {"type": "responses_api_models", "name": "???"},
    "judge_responses_create_params": {"input": []},
}


def test_a_judge_is_a_model_of_ours(tmp_path: Path) -> None:
    folder = write_server(tmp_path, "judged", JUDGED, [row("?")], settings=JUDGE)
    script = tmp_path / "judge.yaml"
    script.write_text("- when: 'right: blue'\n  turns: ['[[A=B]]']\n- turns: ['[[A!=B]]']\n")
    judge = {"resources.judge": f"scripted:{script}"}
    assert collect(folder, ["blue"], settings=judge).rollouts[0].reward == 1.0
    assert collect(folder, ["red"], settings=judge).rollouts[0].reward == 0.0


def test_without_a_judge_the_rollout_fails_and_says_what_to_set(tmp_path: Path) -> None:
    folder = write_server(tmp_path, "judged", JUDGED, [row("?")], settings=JUDGE)
    with pytest.raises(UserError, match="no model is set for it: --set resources.judge=SPEC"):
        collect(folder, ["blue"])


SWALLOWING = JUDGED.replace(
    "        verdict = await call_judge(",
    """        try:
            return await self.judge(body, params)
        except Exception:
            return BaseVerifyResponse(**body.model_dump(), reward=0.0)

    async def judge(self, body: BaseVerifyRequest, params: Any) -> BaseVerifyResponse:
        verdict = await call_judge(""",
)

AGAIN = "return await self.judge(body, params)"


@pytest.mark.parametrize("isolate", [True, False])
def test_a_server_that_makes_0_of_a_dead_judge_gives_no_reward(tmp_path: Path, isolate: bool) -> None:
    folder = write_server(tmp_path, f"swallowing_{isolate}".lower(), SWALLOWING, [row("?")], settings=JUDGE)
    script = tmp_path / "judge.yaml"
    script.write_text("- error: {kind: http_500, cause: the judge is on fire}\n")
    results = collect(folder, ["blue"], isolate=isolate, settings={"resources.judge": f"scripted:{script}"})
    (failure,) = results.failures()
    assert (failure.error.stage, failure.error.kind) == ("verify", "http_500")
    assert failure.error.cause == "the model server judge_model: the judge is on fire"


#: A judge whose first answer is an error.
FLAKY = """
from ludus import Failure

asked = []


def answer(request):
    asked.append(request)
    if len(asked) == 1:
        raise Failure("http_500", "not yet")
    return "[[A=B]]"
"""


def test_a_judge_that_answers_when_asked_again_gives_a_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    again = SWALLOWING.replace("return BaseVerifyResponse(**body.model_dump(), reward=0.0)", AGAIN)
    folder = write_server(tmp_path, "asking_again", again, [row("?")], settings=JUDGE)
    (tmp_path / "flaky_judge.py").write_text(FLAKY)
    monkeypatch.syspath_prepend(tmp_path)
    results = collect(folder, ["blue"], settings={"resources.judge": "scripted:flaky_judge:answer"})
    assert rewards(results) == [1.0]
