"""A server that hangs, dies, raises or cannot start fails its rollouts and says why."""

from __future__ import annotations

from pathlib import Path

import pytest
from hosted_collections import SIMPLE, call, collect, rewards, with_tools
from hosted_servers import row, write_server

from ludus import UserError

pytest.importorskip("fastapi", reason="needs FastAPI: pip install 'ludus-nemo-gym[servers]'")


def test_a_handler_that_never_returns_is_a_timeout_and_the_server_lives_on(tmp_path: Path) -> None:
    rows = [row("first", "endless"), row("second", "endless")]
    folder = write_server(tmp_path, "endless_tool", with_tools("endless"), rows)
    script = [{"when": "first", "turns": [call("endless"), "yes"]}, {"turns": ["yes"]}]
    results = collect(folder, script, isolate=True, settings={"limits.tool": 1.0})
    assert rewards(results) == [1.0]
    (failure,) = results.failures()
    assert (failure.error.stage, failure.error.kind) == ("tool", "timeout")


def test_a_handler_that_blocks_the_event_loop_is_named_and_the_server_started_again(tmp_path: Path) -> None:
    rows = [row("first", "blocking"), row("second", "blocking")]
    folder = write_server(tmp_path, "blocking_tool", with_tools("blocking"), rows)
    script = [{"when": "first", "turns": [call("blocking"), "yes"]}, {"turns": ["yes"]}]
    settings = {"limits.tool": 60.0, "resources.block_seconds": 1.0}
    results = collect(folder, script, isolate=True, settings=settings, concurrency=1)
    assert rewards(results) == [1.0]
    (failure,) = results.failures()
    assert (failure.error.stage, failure.error.kind) == ("tool", "timeout")
    number = next(n for n, line in enumerate((folder / "app.py").read_text().splitlines(), 1) if "3600" in line)
    assert f"was killed: app.py:{number} blocked its event loop for 1 s" in failure.error.cause


def test_requests_that_wait_for_a_busy_server_do_not_time_out(tmp_path: Path) -> None:
    code = with_tools("blocking").replace("time.sleep(3600)", "time.sleep(2.5)\n        return {}")
    rows = [row(str(number), "blocking") for number in range(4)]
    folder = write_server(tmp_path, "busy_tool", code, rows)
    results = collect(folder, [call("blocking"), "yes"], isolate=True, settings={"limits.tool": 8.0})
    assert rewards(results) == [1.0] * 4


def test_a_server_that_dies_fails_its_rollout_and_is_started_again(tmp_path: Path) -> None:
    rows = [row("first", "dying"), row("second", "dying"), row("third", "dying")]
    folder = write_server(tmp_path, "dying_tool", with_tools("dying"), rows)
    script = [{"when": "second", "turns": [call("dying"), "yes"]}, {"turns": ["yes"]}]
    results = collect(folder, script, isolate=True, concurrency=1)
    assert rewards(results) == [1.0, 1.0]
    (failure,) = results.failures()
    assert (failure.error.stage, failure.error.kind) == ("tool", "crash")
    assert failure.error.cause == "the server dying_tool ended with status 7: out of luck"


@pytest.mark.parametrize("isolate", [True, False])
def test_a_verifier_that_raises_fails_the_rollout(tmp_path: Path, isolate: bool) -> None:
    code = """
    class Server(SimpleResourcesServer):
        config: BaseResourcesServerConfig

        async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
            raise KeyError("expected_answer")
    """
    folder = write_server(tmp_path, f"raising_{isolate}".lower(), code, [row("?")])
    results = collect(folder, ["yes"], isolate=isolate)
    (failure,) = results.failures()
    assert (failure.error.stage, failure.error.kind) == ("verify", "http_500")
    assert "KeyError('expected_answer')" in failure.error.cause


@pytest.mark.parametrize(
    ("code", "message", "isolate"),
    [
        ("import no_such_package_at_all", "no_such_package_at_all is not installed", True),
        ("1 / 0", "ZeroDivisionError", False),
        ("class Server(:", "SyntaxError", True),
        ("class Server:\n    pass", "defines no server", False),
        (
            SIMPLE.replace("BaseResourcesServerConfig", "Config").replace(
                "class Server", "class Config(BaseResourcesServerConfig):\n    size: int\n\n\nclass Server"
            ),
            "size",
            False,
        ),
    ],
)
def test_a_server_that_cannot_start_says_why_in_one_line(
    tmp_path: Path, code: str, message: str, isolate: bool
) -> None:
    folder = write_server(tmp_path, "broken", code, [row("?")])
    with pytest.raises(UserError) as raised:
        collect(folder, ["yes"], isolate=isolate)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_setting_that_the_server_does_not_have_is_refused(tmp_path: Path) -> None:
    folder = write_server(tmp_path, "strict", SIMPLE, [row("?")])
    with pytest.raises(UserError, match="strict has no setting num_worker. Did you mean num_workers"):
        collect(folder, ["yes"], settings={"resources.num_worker": 3})
