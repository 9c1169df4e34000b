"""What else is done with a hosted server: metrics, judging again, qualifying and serving."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hosted_collections import call, collect, rewards
from hosted_servers import COUNTER, counter_rows, row, write_server
from ludus_qualify.run import qualify

from ludus import Environment, UserError
from ludus.remote.http import connect
from ludus.rescore.rescoring import rescore
from ludus.serve.plan import Plan
from ludus.serve.serving import Serving
from ludus.serve.site import Site
from ludus.store.receipts import verifier_digest

pytest.importorskip("fastapi", reason="needs FastAPI: pip install 'ludus-nemo-gym[servers]'")


COUNTS_WORDS = """
class Server(SimpleResourcesServer):
    config: BaseResourcesServerConfig

    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        return BaseVerifyResponse(**body.model_dump(), reward=float("yes" in body.response.output_text))

    def compute_metrics(self, tasks: list) -> dict:
        rewards = sum(rollout["reward"] for task in tasks for rollout in task)
        return {"tasks": len(tasks), "most_repeats": max(map(len, tasks)), "rewards": rewards}

    def get_key_metrics(self, agent_metrics: dict) -> dict:
        return {name: agent_metrics[name] for name in ("tasks", "most_repeats", "rewards")}
"""


@pytest.mark.parametrize("files", [True, False])
def test_the_metrics_of_a_server_stand_beside_ours(tmp_path: Path, files: bool) -> None:
    folder = write_server(tmp_path, f"counting_words_{files}".lower(), COUNTS_WORDS, [row("?"), row("??")])
    results = collect(folder, ["yes"], repeats=3, output=tmp_path / "run" if files else None)
    assert results.metrics["own"] == {folder.name: {"tasks": 2, "most_repeats": 3, "rewards": 6}}


def test_metrics_that_raise_are_a_warning(tmp_path: Path) -> None:
    code = COUNTS_WORDS.replace('return {"tasks"', 'raise KeyError("no such column")\n        return {"tasks"')
    folder = write_server(tmp_path, "miscounting", code, [row("?")])
    results = collect(folder, ["yes"])
    assert rewards(results) == [1.0]
    (warning,) = results.warnings
    assert warning.startswith("miscounting could not compute its own metrics")
    assert "no such column" in warning


def test_stored_rollouts_are_judged_again(tmp_path: Path) -> None:
    folder = write_server(tmp_path, "judged_again", COUNTER, counter_rows(3))
    script = [call("increment_counter", count=5), "done"]
    collect(folder, script, output=tmp_path / "run")
    before = verifier_digest(Environment.load(folder))
    code = folder / "app.py"
    code.write_text(code.read_text().replace("float(count == body.expected_count)", "float(count == 6)"))
    assert verifier_digest(Environment.load(folder)) != before
    settings = {"resources.isolate": False}
    report = rescore(tmp_path / "run", environment=folder, settings=settings)
    assert report.counts == {"unchanged": 1, "changed": 2}


def test_a_server_is_qualified_with_hooks_from_elsewhere(tmp_path: Path) -> None:
    folder = write_server(tmp_path, "qualified", COUNTER, counter_rows(5))
    hooks = tmp_path / "my_hooks.py"
    hooks.write_text(
        "def oracle(task):\n"
        "    return [{'call': 'increment_counter', 'arguments': {'count': 5}}, 'Done.']\n\n\n"
        "def breaking(task):\n"
        "    return {'one_more': [{'call': 'increment_counter', 'arguments': {'count': 6}}, 'Done.']}\n"
    )
    card = qualify(folder, hooks=hooks, odd=5, settings={"resources.isolate": False})
    assert (card.verdict, card.oracle) == ("trusted", 1.0)


def test_the_folder_of_a_server_is_served_on_its_own_routes(tmp_path: Path) -> None:
    extra = (
        COUNTER.replace(
            '        app.post("/increment_counter")(self.increment)\n',
            '        app.post("/increment_counter")(self.increment)\n        app.get("/size/{name}")(self.size)\n',
        )
        + """
    async def size(self, name: str, unit: str = "m") -> dict:
        return {"name": name, "unit": unit}
"""
    )
    folder = write_server(tmp_path, "served_counter", extra, counter_rows(1))

    async def use() -> list[Any]:
        async with Serving(Plan.of([str(folder)], resources_only=True, head_port=None)) as serving:
            (server,) = serving.plan.servers
            async with connect(server.url, "LUDUS_TOKEN") as client:
                seeded = await client.post("/seed_session", b'{"initial_count": 3}')
                headers = {"cookie": seeded.cookie}
                counted = await client.post("/increment_counter", b'{"count": 4}', headers)
                wrong = await client.post("/increment_counter", b'{"count": "x"}', headers)
                size = await client.get("/size/rug?unit=cm")
                mode = await client.get("/reverify_mode")
                return [seeded.status, counted.json(), wrong.status, size.json(), mode.json()]

    expected = [200, {"success": True}, 422, {"name": "rug", "unit": "cm"}, "unknown"]
    assert asyncio.run(use()) == expected


def test_several_processes_do_not_share_the_sessions_of_a_server(tmp_path: Path) -> None:
    folder = write_server(tmp_path, "one_process", COUNTER, counter_rows(1))

    async def serve() -> None:
        site = Site(Plan.of([str(folder)], resources_only=True, head_port=None, workers=2))
        try:
            await site.open()
        finally:
            await site.stop()

    with pytest.raises(UserError, match="one_process keeps its sessions in one process.*Leave --workers out"):
        asyncio.run(serve())
