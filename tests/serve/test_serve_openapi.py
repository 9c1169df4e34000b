"""Servers keep to their OpenAPI documents: generated requests get the documented replies, and never a 5xx."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from http.client import HTTPConnection
from http.cookiejar import DefaultCookiePolicy
from typing import Any
from urllib.parse import urlsplit

import lazily
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from serving import COUNTER, Web, served, url_of

from ludus.environment import Environment
from ludus.serve.serving import Serving

schemathesis = lazily.imported("schemathesis", "pip install 'ludus-gym[dev]'")
requests = lazily.imported("requests", "pip install requests")

ENVIRONMENTS = [COUNTER, "mcqa", "blackjack"]
NOT_IN_A_SESSION = ("/seed_session", "/reset", "/aggregate_metrics", "/reverify_mode", "/health")

#: Requests for each operation: this many that fit its schema, and this many that do not.
EXAMPLES = max(4, int(os.environ.get("LUDUS_EXAMPLES", "40")) // 10)


@pytest.fixture(scope="module")
def serving() -> Iterator[Serving]:
    with served(*ENVIRONMENTS) as running:
        yield running


class Client:
    """Sends generated requests over one connection. With a row, each request gets a fresh session of that row."""

    def __init__(self, url: str, row: dict[str, Any] | None) -> None:
        self.url = url
        self.document = Web(url).get("/openapi.json").json()
        self.statuses: Counter[int] = Counter()
        self._row = row
        self._http = requests.Session()
        self._http.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))

    def try_all(self) -> None:
        """Generate requests for every operation, and check every reply."""
        for found in schemathesis.openapi.from_dict(self.document).get_all_operations():
            operation = found.ok()
            if self._row is not None and operation.path in NOT_IN_A_SESSION:
                continue
            modes = schemathesis.GenerationMode
            for mode in (modes.POSITIVE, modes.NEGATIVE) if operation.method == "post" else (modes.POSITIVE,):
                self._try(operation, mode)
        self._http.close()

    def _try(self, operation: Any, mode: Any) -> None:
        @settings(
            max_examples=EXAMPLES,
            derandomize=True,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(generation_mode=mode))
        def check(case: Any) -> None:
            reply = case.call(base_url=self.url, session=self._http, headers=self._session(operation.path))
            self.statuses[reply.status_code] += 1
            case.validate_response(reply, checks=CHECKS)

        check()

    def _session(self, path: str) -> dict[str, str]:
        if self._row is None:
            return {}
        opened = Web(self.url).post("/reset" if path == "/step" else "/seed_session", self._row)
        return {"x-ludus-session": opened.headers["x-ludus-session"]}


def _checks() -> list[Any]:
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi.checks import content_type_conformance, status_code_conformance

    return [not_a_server_error, status_code_conformance, content_type_conformance]


CHECKS = _checks()


def first_row(name: str) -> dict[str, Any]:
    row: dict[str, Any] = json.loads(Environment.load(name).dataset().read_text().partition("\n")[0])
    return row


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_a_resources_server_keeps_to_its_document(serving: Serving, name: str):
    sessionless, in_session = Client(url_of(serving, name), None), Client(url_of(serving, name), first_row(name))
    sessionless.try_all()
    in_session.try_all()
    assert {200, 400, 422} <= sessionless.statuses.keys()
    assert {200, 422} <= in_session.statuses.keys()


@pytest.mark.parametrize("name", [COUNTER, "blackjack"])
def test_an_agent_server_keeps_to_its_document(serving: Serving, name: str):
    agent = Client(url_of(serving, f"{name}_simple_agent"), None)
    agent.try_all()
    assert {200, 422} <= agent.statuses.keys()


def test_a_model_server_keeps_to_its_document(serving: Serving):
    model = Client(url_of(serving, "policy_model"), None)
    model.try_all()
    assert {200, 400, 422} <= model.statuses.keys()


def servers(serving: Serving) -> list[tuple[str, dict[str, Any]]]:
    urls = [server.url for server in serving.plan.servers]
    return [(url, Web(url).get("/openapi.json").json()["paths"]) for url in urls]


def test_every_route_refuses_a_body_that_is_not_a_json_object(serving: Serving):
    bodies = [b"[1]", b'"text"', b"3", b"null", b"true", b"{", b"\xff\xfe", b"[" * 100_000, b'{"a":' * 5_000, b"NaN"]
    for url, paths in servers(serving):
        for path in (path for path, item in paths.items() if "post" in item and path != "/close_session"):
            statuses = [Web(url).post(path, body).status for body in bodies]
            assert set(statuses) <= {200, 400, 422}, (url, path, statuses)
            # A tool route may reply 200: the reply tells the model what is wrong with its arguments.
            assert 200 not in statuses or paths[path]["post"].get("x-ludus-tool"), (url, path, statuses)


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"])
def test_a_wrong_method_is_refused_with_the_allowed_one(serving: Serving, method: str):
    for url, paths in servers(serving):
        for path, item in paths.items():
            if method.lower() in item:
                continue
            connection = HTTPConnection(urlsplit(url).hostname or "", urlsplit(url).port, timeout=300)
            connection.request(method, path)
            reply = connection.getresponse()
            body = reply.read()
            connection.close()
            if item.get("post", {}).get("x-ludus-tool"):  # a tool has no route: only a POST finds it
                assert (reply.status, body or b"") in [(404, b'{"detail":"Not Found"}'), (404, b"")]
            else:
                assert reply.status == 405, (url, path)
                assert reply.headers["allow"] in ("GET", "POST")


def test_a_document_describes_the_rows_of_its_environment(serving: Serving):
    document = Web(url_of(serving, COUNTER)).get("/openapi.json").json()
    schema = document["paths"]["/seed_session"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert schema["required"] == ["responses_create_params", "initial_count", "expected_count"]
    assert schema["properties"]["initial_count"]["type"] == "integer"
