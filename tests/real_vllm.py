"""A real vLLM server on the CPU, with the weights of SmolLM2: `make test-vllm` installs it into `.venv-vllm`."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import smollm2
from ludus_transformers.loading import load
from tiny_transformers import TEMPLATES

PYTHON = Path(__file__).resolve().parents[1] / ".venv-vllm/bin/python"
#: The longest that a server may need until it answers.
STARTS_IN = 600
FLAGS = [
    *("--served-model-name", "policy", "--host", "127.0.0.1", "--dtype", "float32", "--max-model-len", "4096"),
    *("--enforce-eager", "--enable-auto-tool-choice", "--tool-call-parser", "hermes"),
    *("--logprobs-mode", "processed_logprobs"),
]
SETTINGS = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_SERVER_DEV_MODE": "1", "VLLM_NO_USAGE_STATS": "1"}


def save_weights(folder: Path) -> tuple[Any, Any]:
    """Write SmolLM2 into a folder, with a template that shows tools. Its model and tokenizer are returned."""
    model, tokenizer = load(str(smollm2.weights()), None, "float32", "cpu")
    tokenizer.chat_template = TEMPLATES["tools"]
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model, tokenizer


@contextmanager
def serving(folder: Path, *flags: str) -> Iterator[str]:
    """The address of a server of the weights in a folder. The end of its log explains why it does not come up."""
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
    log = folder / "vllm.log"
    command = [str(PYTHON), "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder), "--port", str(port)]
    environment = {**os.environ, **SETTINGS, "HF_HUB_OFFLINE": "1"}
    with log.open("w") as file:
        process = subprocess.Popen(
            [*command, *FLAGS, *flags],
            stdout=file,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd=folder,
            start_new_session=True,
        )
    try:
        _wait(process, f"http://127.0.0.1:{port}/health", log)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _wait(process: subprocess.Popen[bytes], address: str, log: Path) -> None:
    until = time.monotonic() + STARTS_IN
    while process.poll() is None and time.monotonic() < until:
        try:
            with urllib.request.urlopen(address, timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    pytest.fail(f"vLLM did not come up:\n{log.read_text()[-3000:]}")
