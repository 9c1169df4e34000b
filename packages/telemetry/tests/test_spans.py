"""OpenTelemetry spans of a collection, sent by the real exporter to a receiver on this machine."""

from __future__ import annotations

import gzip
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import forked
import pytest
from ludus_telemetry.spans import SpanOptions, spans_of
from servers import Server, running
from worker_runs import environment, recorded, rows, run, write_rows

import ludus
from ludus import ScriptedModel

PIP = "pip install opentelemetry-sdk opentelemetry-exporter-otlp-proto-http"
messages = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2", reason=f"needs: {PIP}")
pytest.importorskip("opentelemetry.sdk.trace", reason=f"needs: {PIP}")
pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason=f"needs: {PIP}")

CODES = {0: "unset", 1: "ok", 2: "error"}


class Received:
    """A span as a receiver stores it."""

    def __init__(self, span: Any) -> None:
        self.id, self.parent_id, self.trace = span.span_id, span.parent_span_id, span.trace_id
        self.name, self.start, self.end = span.name, span.start_time_unix_nano, span.end_time_unix_nano
        self.kind, self.status = span.kind, CODES[span.status.code]
        self.said = span.status.message
        self.attributes = {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in span.attributes}


class Receiver:
    """Receives spans over OTLP, as a collector of OpenTelemetry does."""

    def __init__(self) -> None:
        self.spans: list[Received] = []
        self.resources: list[dict[str, str]] = []
        self.raw = b""

    def take(self, body: bytes) -> None:
        self.raw += body
        for group in messages.ExportTraceServiceRequest.FromString(body).resource_spans:
            self.resources.append({each.key: each.value.string_value for each in group.resource.attributes})
            self.spans += [Received(span) for scope in group.scope_spans for span in scope.spans]

    def tree(self, root: Received) -> dict[str, Any]:
        """The names below a span, by the time at which they began."""
        below = sorted((each for each in self.spans if each.parent_id == root.id), key=lambda span: span.start)
        return {each.name: self.tree(each) for each in below}

    def roots(self) -> dict[str, Received]:
        return {each.attributes["ludus.rollout_id"]: each for each in self.spans if not each.parent_id}


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    """A receiver that the standard variables name."""
    found = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            found.take(gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    yield found
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an environment and a model, which is the working folder."""
    monkeypatch.chdir(environment(tmp_path / "acts"))
    return tmp_path / "acts"


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_every_rollout_is_a_trace_of_turns_model_calls_tools_and_a_verdict(folder, receiver, workers):
    run(folder, "out", input=rows(4, "fail"), repeats=2, otel=True, workers=workers)
    roots = receiver.roots()
    stored = {**recorded(folder / "out"), **recorded(folder / "out", "failures.jsonl")}
    assert roots.keys() == stored.keys()
    assert len({root.trace for root in roots.values()}) == len(roots) == 8
    chat, verify = "chat scripted:answers:respond", {"verify": {}}
    turns = {"turn 1": {chat: {}, "execute_tool add": {}}, "turn 2": {chat: {}}}
    for name, root in roots.items():
        row = stored[name]
        assert receiver.tree(root) == {"open": {}, **turns, **verify, "close": {}}
        assert root.name == "invoke_agent acts"
        assert root.attributes["ludus.outcome"] == row["outcome"]
        assert root.attributes.get("ludus.reward") == row.get("reward")
        assert root.attributes["gen_ai.operation.name"] == "invoke_agent"
        assert root.status == ("error" if row["outcome"] == "failed" else "unset")
        if row["outcome"] == "failed":
            assert root.attributes["error.type"] == "verify/crash"
    ids = {span.id: span for span in receiver.spans}
    for span in receiver.spans:
        parent = ids.get(span.parent_id)
        assert span.start <= span.end
        if parent is not None:
            assert span.trace == parent.trace
            assert parent.start - 2000 <= span.start  # the record has microseconds
            assert span.end <= parent.end + 1_000_000
    assert receiver.resources[0]["service.name"] == "ludus"
    assert receiver.resources[0]["ludus.run"] == "out"


def test_no_step_ends_after_its_rollout_although_their_clocks_differ(folder, receiver):
    (rollout,) = ludus.collect(str(folder), model="scripted:answers:respond", input=rows(1), otel=True).rollouts
    rollout.timings["total"] = 0.000001
    root = spans_of(rollout, SpanOptions())
    assert root.children
    assert max(each.end for each in root.children) <= root.end


def test_model_and_tool_spans_have_the_conventional_attributes(folder, receiver, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "-")
    with running(Server()) as server:
        increment = {"type": "function", "name": "increment_counter", "parameters": {"type": "object"}}
        asked = {"input": "the secret prompt", "tools": [increment]}
        ludus.collect(folder, model=f"{server.url}#gpt", input=[{"responses_create_params": asked}], otel=True)
    chat = next(each for each in receiver.spans if each.name == "chat gpt")
    assert chat.kind == 3  # a call of another service
    assert chat.attributes == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt",
        "server.address": "127.0.0.1",
        "server.port": int(server.url.split(":")[2].split("/")[0]),
        "gen_ai.usage.input_tokens": 7,
        "gen_ai.usage.output_tokens": 3,
    }
    tool = next(each for each in receiver.spans if each.name == "execute_tool increment_counter")
    assert tool.attributes == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "increment_counter",
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": "call_1",
    }
    root = next(iter(receiver.roots().values()))
    assert root.attributes["gen_ai.usage.input_tokens"] == 14
    verify = next(each for each in receiver.spans if each.name == "verify")
    assert verify.attributes == {"gen_ai.evaluation.name": "reward", "gen_ai.evaluation.score.value": 0.0}


def test_texts_are_sent_only_if_the_standard_variable_asks_for_them(folder, receiver, monkeypatch):
    given = {"input": [{"responses_create_params": {"input": "the secret prompt"}, "act": "fail"}], "otel": True}
    run(folder, "without", **given)
    assert receiver.spans
    for text in (b"secret prompt", b"number", b"no verdict"):
        assert text not in receiver.raw
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "true")
    run(folder, "with", **given)
    root = next(reversed(receiver.roots().values()))
    assert "the secret prompt" in root.attributes["gen_ai.input.messages"]
    assert "no verdict" in root.said
    tool = [each for each in receiver.spans if each.name == "execute_tool add"][-1]
    assert '"number"' in tool.attributes["gen_ai.tool.call.arguments"]


def test_a_tool_that_raises_has_an_error_span_and_the_rollout_none(folder, receiver):
    model = ScriptedModel([{"call": "add", "arguments": {"number": -1}}, "done"])
    run(folder, "out", input=rows(1), otel=True, model=model)
    tool = next(each for each in receiver.spans if each.name == "execute_tool add")
    assert (tool.status, tool.attributes["error.type"]) == ("error", "ValueError")
    assert next(iter(receiver.roots().values())).status == "unset"


def test_branches_are_traced_from_their_branch_point(folder, receiver):
    run(folder, "parents", input=rows(1))
    run(folder, "branches", branch=folder / "parents", turn=1, repeats=2, otel=True)
    trees = [receiver.tree(root) for root in receiver.roots().values()]
    assert trees == [{"open": {}, "turn 1": {"chat scripted:answers:respond": {}}, "verify": {}, "close": {}}] * 2


def test_a_collection_survives_a_receiver_that_is_down(folder, monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    found = run(folder, "out", input=rows(2), otel=True)
    assert found.metrics["counts"]["completed"] == 2
    assert found.observer is not None
    assert len(found.observer.problems) == 1
    assert found.observer.problems[0].startswith("18 of 18 spans were not sent: ")
    assert "OTEL_EXPORTER_OTLP_ENDPOINT" in found.observer.problems[0]


def test_records_hold_step_times_only_if_the_run_is_traced(folder, receiver):
    run(folder, "plain", input=rows(1))
    run(folder, "traced", input=rows(1), otel=True)
    plain, traced = (next(iter(recorded(folder / name).values())) for name in ("plain", "traced"))
    times = traced.pop("step_times")
    assert plain == traced
    assert [step["stage"] for step in times["steps"]] == ["open", "model", "tool", "model", "verify"]
    assert next(iter(ludus.load(folder / "traced"))).step_times == times


@pytest.mark.slow
def test_the_command_sends_spans(folder, receiver):
    write_rows(folder, rows(2))
    given = ["collect", str(folder), "--model", "scripted:answers:respond", "--input", "rows.jsonl", "--otel"]
    ended = forked.run([sys.executable, "-m", "ludus", *given], cwd=folder, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert len(receiver.roots()) == 2
