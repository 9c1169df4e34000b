"""The start of `ludus view`: what is imported before the first page."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from pathlib import Path

import viewed_runs


def test_the_first_page_needs_no_http_client_and_no_environment(tmp_path: Path):
    folder = viewed_runs.write_run(tmp_path / "run", tasks=1, repeats=1)
    command = [sys.executable, "-X", "importtime", "-m", "ludus", "view", str(folder), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as viewer:
        assert viewer.stdout is not None
        with urllib.request.urlopen(json.loads(viewer.stdout.readline())["link"]) as page:
            assert page.status == 200
        viewer.terminate()
        _, said = viewer.communicate()
    imported = {line.rpartition("|")[2].strip() for line in said.splitlines()}
    assert "ludus.view.app" in imported
    heavy = {"aiohttp", "httpx", "pydantic", "yaml", "ludus.environment", "ludus.collection.collector", "ludus.compare"}
    assert not imported & heavy
