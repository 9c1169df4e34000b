"""The keys of a server's configuration reach the server, and nothing that is recorded or shown."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
from hosted_servers import row, write_server

import ludus
from ludus import ScriptedModel

pytest.importorskip("fastapi", reason="needs FastAPI: pip install 'ludus-nemo-gym[servers]'")

TELLING = """
class Config(BaseResourcesServerConfig):
    api_key: str
    search: dict
    url: str


class Judged(BaseVerifyRequest):
    how: str


class Server(SimpleResourcesServer):
    config: Config

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.post("/tell")(self.tell)
        return app

    async def tell(self) -> dict:
        return {"configuration": str(self.server_client.global_config_dict)}

    async def verify(self, body: Judged) -> dict:
        told = repr(self.config)
        print(told, flush=True)
        if body.how == "raises":
            raise ValueError(told)
        if body.how == "dies":
            os._exit(1)
        if body.how == "fails":
            return {"reward": 0.0, "_ng_failure_class": "judge_failed", "failure_reason": told}
        return {"reward": float(self.config.api_key == "first-secret"), "mask_sample": True, "failure_reason": told}
"""


@pytest.mark.parametrize("isolate", [True, False])
def test_a_server_that_tells_its_keys_tells_them_to_nobody(
    tmp_path: Path, isolate: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("FIRST_SECRET", "first-secret")
    caplog.set_level(logging.INFO)
    settings = {
        "api_key": "${oc.env:FIRST_SECRET}",
        "search": {"access_token": 'second-"secret"'},
        "url": "http://me:third-secret@example.org/",
    }
    ways = ["raises", "fails", "masks", *(["dies"] if isolate else [])]
    rows = [row(way, "tell", how=way) for way in ways]
    folder = write_server(tmp_path / "gym", "telling", TELLING, rows, settings=settings)
    script = [{"call": "tell", "arguments": {}}, "done"]
    options = {"resources.isolate": isolate}
    run = tmp_path / "run"
    results = ludus.collect(folder, model=ScriptedModel(script), settings=options, output=run, concurrency=1)
    assert [rollout.reward for rollout in results.rollouts if rollout.reward is not None] == [1.0]
    written = caplog.text + "".join(file.read_text() for file in run.rglob("*") if file.is_file())
    assert "***" in written
    for secret in ("first-secret", 'second-"secret"', json.dumps('second-"secret"')[1:-1], "third-secret"):
        assert secret not in written
