"""Shared by all benchmarks: a model server in another process, a meter, and fresh processes to measure in.

Compare CPU time: on a shared machine wall time depends on the other load. Each measurement runs in a fresh process
(`run_json`), so that no case inherits the heap, the caches or the connections of another. The scripts of this folder
import each other by plain name: run them as `python benchmarks/NAME.py`.
"""

import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

SAMPLE_EVERY_S = 0.05


def rss_bytes() -> int:
    """Resident memory of this process now; without /proc, its peak."""
    try:
        with open("/proc/self/statm", "rb") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except FileNotFoundError:
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


class Meter:
    """Wall time, CPU time (user and system, all threads) and peak memory of this process while the block runs."""

    def __init__(self) -> None:
        self.wall_s = 0.0
        self.cpu_s = 0.0
        self.rss_before = 0
        self.rss_peak = 0

    async def __aenter__(self) -> Self:
        self.rss_before = self.rss_peak = rss_bytes()
        self._sampler = asyncio.create_task(self._sample())
        self._wall, self._cpu = time.perf_counter(), time.process_time()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self.wall_s, self.cpu_s = time.perf_counter() - self._wall, time.process_time() - self._cpu
        self.rss_peak = max(self.rss_peak, rss_bytes())
        self._sampler.cancel()
        with suppress(asyncio.CancelledError):
            await self._sampler

    async def _sample(self) -> None:
        while True:
            await asyncio.sleep(SAMPLE_EVERY_S)
            self.rss_peak = max(self.rss_peak, rss_bytes())

    def report(self) -> dict[str, Any]:
        return {
            "wall_s": self.wall_s,
            "cpu_s": self.cpu_s,
            "rss_before": self.rss_before,
            "rss_peak": self.rss_peak,
            "rss_growth": self.rss_peak - self.rss_before,
        }


@contextmanager
def certified() -> Iterator[Path]:
    """Yield a PEM file with a key and a certificate for 127.0.0.1. Processes that start meanwhile trust it."""
    import trustme

    authority, before = trustme.CA(), os.environ.get("SSL_CERT_FILE")
    with tempfile.TemporaryDirectory() as folder:
        trusted, certificate = Path(folder) / "ca.pem", Path(folder) / "server.pem"
        authority.cert_pem.write_to_path(str(trusted))
        authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(certificate))
        os.environ["SSL_CERT_FILE"] = str(trusted)
        try:
            yield certificate
        finally:
            del os.environ["SSL_CERT_FILE"]
            if before is not None:
                os.environ["SSL_CERT_FILE"] = before


@contextmanager
def stub_server(**options: object) -> Iterator[str]:
    """Run the stub model server in its own process and yield its base URL: `stub_server(turns=10, delay=1)`.

    Options are the server's flags, spelled with underscores. With a `certificate` it speaks TLS. It calls the counter's
    tool, with answers that were encoded in advance.
    """
    options = {"tool": "increment_counter", "arguments": '{"count": 1}', **options}
    scheme = "https" if "certificate" in options else "http"
    flags = [part for name, value in options.items() for part in (f"--{name.replace('_', '-')}", str(value))]
    process = subprocess.Popen([sys.executable, "-m", "ludus_bench.stub_server", *flags], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        ready = process.stdout.readline()
        if not ready:
            raise RuntimeError(f"The stub server did not start; exit status {process.wait()}")
        yield f"{scheme}://127.0.0.1:{json.loads(ready)['port']}"
    finally:
        process.terminate()
        try:
            process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()


def run_json(cmd: Sequence[str]) -> dict[str, Any]:
    """Run a command in a fresh process and parse the last line it prints as JSON; its stderr passes through."""
    done = subprocess.run(cmd, stdout=subprocess.PIPE, text=True)
    lines = done.stdout.strip().splitlines()
    if done.returncode != 0 or not lines:
        raise RuntimeError(f"The measured process failed with exit status {done.returncode}: {' '.join(cmd)}")
    result: dict[str, Any] = json.loads(lines[-1])
    return result
