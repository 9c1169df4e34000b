"""The metrics of a collection for Prometheus, over HTTP while it runs. Only a scrape costs anything."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ludus.errors import UserError
from ludus.http.app import App
from ludus.http.guard import Guard, required_token
from ludus.http.listening import Listening, address, bind
from ludus.http.messages import Incoming, Reply
from ludus.http.prometheus import Metric, prometheus_reply
from ludus.runtime.numbers import whole_number
from ludus_telemetry.state import RunState

#: Beyond loopback, a client must send the token in this variable.
TOKEN_ENV = "LUDUS_TOKEN"


class MetricsServer:
    """Serves `/metrics` from `start` to `stop`. `place` is a port of loopback, or HOST:PORT."""

    def __init__(self, place: int | str) -> None:
        host, port = _host_and_port(place)
        guard = Guard(token=required_token({host}, TOKEN_ENV))
        self._socket = bind("--metrics-port", host, port, "--metrics-port; 0 takes a free one", "--metrics-port")
        self.url = f"{address(host, self._socket.getsockname()[1])}/metrics"
        self._app = _MetricsApp(guard)
        self._listening = Listening(self._app, self._socket)

    async def start(self, state: Callable[[], RunState]) -> None:
        """Begin to serve the state of a run."""
        self._app.run_state = state
        await self._listening.begin()

    async def stop(self) -> None:
        """Stop serving, and free the port."""
        await self._listening.stop()
        self.close()

    def close(self) -> None:
        """Free the port of a server that was not started."""
        self._socket.close()


class _MetricsApp(App):
    run_state: Callable[[], RunState]

    def __init__(self, guard: Guard) -> None:
        super().__init__(guard)
        self.routes["GET", "/metrics"] = self._run_metrics

    async def _run_metrics(self, incoming: Incoming) -> Reply:
        return prometheus_reply(run_metrics(self.run_state()))


def run_metrics(state: RunState) -> Iterator[Metric]:
    """The metrics of a run. Metrics without a value, such as the mean reward before the first rollout, are left out."""
    totals, usage = state.totals, state.totals.usage
    by_outcome = [(count, {"outcome": outcome}) for outcome, count in totals.counts.items()]
    failures = [(count, _failure_labels(name)) for name, count in totals.failures.items()]
    kinds = ("input", "output")
    tokens = [(usage[f"{kind}_tokens"], {"kind": kind}) for kind in kinds if f"{kind}_tokens" in usage]
    seconds = [(round(value, 6), {"stage": stage}) for stage, value in totals.seconds.items()]
    in_flight = [(count, {"stage": stage}) for stage, count in state.in_flight.items()]
    yield Metric("rollouts_total", "counter", by_outcome, "Rollouts that ended.")
    yield Metric("rollout_failures_total", "counter", failures, "Failed rollouts.")
    yield Metric("tokens_total", "counter", tokens, "Tokens that the model read and wrote.")
    yield Metric("stage_seconds_total", "counter", seconds, "Seconds that rollouts spent in each stage.")
    yield Metric("rollouts_in_flight", "gauge", in_flight, "Rollouts that are being played.")
    yield Metric("rollouts_expected", "gauge", [(state.expected, {})], "Rollouts of the whole collection.")
    yield Metric("collection_seconds", "gauge", [(round(state.seconds, 3), {})], "Seconds since the run began.")
    if totals.mean_reward is not None:
        yield Metric("reward_mean", "gauge", [(totals.mean_reward, {})], "Mean reward of completed rollouts.")
    if totals.pass_rate is not None:
        yield Metric("pass_rate", "gauge", [(totals.pass_rate, {})], "Share of completed rollouts that passed.")


def _failure_labels(name: str) -> dict[str, str]:
    stage, _, kind = name.partition("/")
    return {"stage": stage, "kind": kind}


def _host_and_port(place: int | str) -> tuple[str, int]:
    host, colon, port = str(place).rpartition(":")
    number = whole_number(port, digits=5)
    if number is None or number > 65535 or (colon and not host):
        raise UserError(f"--metrics-port {place!s:.60} is not a port", "Example: --metrics-port 9464")
    return host.strip("[]") or "127.0.0.1", number
