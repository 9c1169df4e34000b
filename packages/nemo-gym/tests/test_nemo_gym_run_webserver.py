"""`python app.py` serves one server of NeMo Gym: its log names it, its handlers end with their clients, and it may be
profiled."""

from __future__ import annotations

import http.client
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="needs FastAPI: pip install 'ludus-nemo-gym[servers]'")

from nemo_gym._named_lines import NamedLines
from nemo_gym.global_config import find_open_port
from test_nemo_gym_servers import CEILING, until

APP = """
import asyncio
from pathlib import Path

from fastapi import FastAPI
from nemo_gym.base_resources_server import BaseResourcesServerConfig, SimpleResourcesServer


class Waiting(SimpleResourcesServer):
    config: BaseResourcesServerConfig

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.post("/wait")(self.wait)
        return app

    async def wait(self) -> dict:
        print("waiting")
        Path("waiting").touch()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            Path("cancelled").touch()
            raise

    async def verify(self, body):
        return body


if __name__ == "__main__":
    Waiting.run_webserver()
"""


@contextmanager
def running(folder: Path, **settings: Any) -> Iterator[int]:
    """The server in a process of its own, which writes its output to `log`; its port."""
    port = find_open_port()
    (folder / "app.py").write_text(APP)
    block = {"entrypoint": "app.py", "host": "127.0.0.1", "port": port}
    tree = {"patient": {"resources_servers": {"waiting": block}}, "results_dir": str(folder), **settings}
    names = {"NEMO_GYM_CONFIG_DICT": json.dumps(tree), "NEMO_GYM_CONFIG_PATH": "patient", "PYTHONUNBUFFERED": "1"}
    with (folder / "log").open("wb") as log:
        environment = {**os.environ, **names}
        process = subprocess.Popen([sys.executable, "app.py"], cwd=folder, env=environment, stdout=log, stderr=log)
    try:
        until(lambda: "listens on" in (folder / "log").read_text())
        yield port
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(CEILING) == 0


def ask(port: int, method: str, path: str) -> http.client.HTTPConnection:
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request(method, path)
    return connection


def test_a_handler_is_cancelled_when_its_client_leaves_and_every_line_names_the_server(tmp_path: Path) -> None:
    with running(tmp_path) as port:
        client = ask(port, "POST", "/wait")
        until((tmp_path / "waiting").exists)
        client.close()
        until((tmp_path / "cancelled").exists)
    lines = (tmp_path / "log").read_text().splitlines()
    assert "[patient] waiting" in lines
    assert all(line.startswith("[patient] ") for line in lines), lines


def test_a_server_with_profiling_writes_its_profile_on_request(tmp_path: Path) -> None:
    with running(tmp_path, profiling_enabled=True) as port:
        with closing(ask(port, "GET", "/stats")) as client:
            assert client.getresponse().read() == b""
        assert (tmp_path / "profiles" / "patient.prof").is_file()


def test_lines_get_their_name_however_they_are_written() -> None:
    stream = io.StringIO()
    named = NamedLines(stream, "s")
    print("one", "two", file=named)
    named.writelines(["th", "ree\n\nfo"])
    named.write("")
    named.write("ur")
    named.flush()
    assert stream.getvalue() == "[s] one two\n[s] three\n[s] \n[s] four"
