"""`ServerClient` as servers and agents use it: by name, with aiohttp's options."""

import asyncio
import json
import pickle
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from unittest.mock import AsyncMock, MagicMock

import pytest
from nemo_gym.config_types import BaseServerConfig
from nemo_gym.openai_utils import NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.rollout_correlation import rollout_context
from nemo_gym.server_utils import ServerClient, get_response_json, initialize_ray, raise_for_status
from omegaconf import OmegaConf
from omegaconf.errors import ConfigKeyError

aiohttp = pytest.importorskip("aiohttp", reason="servers need the extra `servers`")


class Echo(BaseHTTPRequestHandler):
    """Replies with what it was sent. `/status/N` has the status N."""

    protocol_version = "HTTP/1.1"

    def reply(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        status = int(self.path.rpartition("/")[2]) if "/status/" in self.path else 200
        echo = {
            "method": self.command,
            "path": self.path,
            "headers": {name.lower(): value for name, value in self.headers.items()},
            "body": body.decode(),
        }
        content = json.dumps(echo).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Set-Cookie", "session=abc; Path=/; HttpOnly")
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = reply

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def port():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_port
    server.shutdown()
    thread.join()
    server.server_close()


def tree_of(port: int, **settings) -> dict:
    block = {"entrypoint": "app.py", "host": "127.0.0.1", "port": port}
    return {
        "tools": {"resources_servers": {"tools": block}},
        "policy_model": {"responses_api_models": {"vllm_model": block}},
        "front": {"environment_servers": {"legacy_agent": block}},
        **settings,
    }


def client_of(tree: dict) -> ServerClient:
    head = BaseServerConfig(host="127.0.0.1", port=1)
    return ServerClient(head_server_config=head, global_config_dict=OmegaConf.create(tree))


async def echo_of(reply) -> dict:
    await raise_for_status(reply)
    return await get_response_json(reply)


@pytest.mark.parametrize("name", ["tools", "policy_model", "front"])
async def test_servers_of_every_kind_are_called_by_name(port, name):
    echo = await echo_of(await client_of(tree_of(port)).post(server_name=name, url_path="/x", json={"a": 1}))
    assert (echo["method"], echo["path"], json.loads(echo["body"])) == ("POST", "/x", {"a": 1})
    assert echo["headers"]["content-type"] == "application/json"


async def test_a_client_may_be_constructed_with_a_plain_dictionary(port):
    client = ServerClient.model_construct(global_config_dict=tree_of(port))
    assert (await echo_of(await client.get(server_name="tools", url_path="/x")))["method"] == "GET"


async def test_a_model_is_sent_without_the_defaults_that_nobody_set(port):
    params = NeMoGymResponseCreateParamsNonStreaming(input="hi", temperature=None)
    reply = await client_of(tree_of(port)).post(server_name="tools", url_path="/x", json=params)
    assert json.loads((await echo_of(reply))["body"]) == {"input": "hi", "temperature": None}


async def test_aiohttps_options_work(port):
    client = client_of(tree_of(port))
    reply = await client.post(
        server_name="tools",
        url_path="/x",
        params={"q": "a b", "n": 1},
        data={"field": "value"},
        headers={"X-Mine": "1"},
        timeout=aiohttp.ClientTimeout(total=30),
    )
    echo = await echo_of(reply)
    assert (echo["path"], echo["body"], echo["headers"]["x-mine"]) == ("/x?q=a+b&n=1", "field=value", "1")
    assert echo["headers"]["content-type"] == "application/x-www-form-urlencoded"
    echo = await echo_of(await client.request("tools", "/x", "POST", data="text", timeout=30))
    assert echo["body"] == "text"


async def test_a_reply_is_read_with_the_options_and_the_context_manager_of_aiohttp(port):
    async with await client_of(tree_of(port)).post(server_name="tools", url_path="/x", json={"a": 1}) as reply:
        assert (await reply.json(content_type=None))["method"] == "POST"
        assert json.loads(await reply.text(encoding="utf-8")) == json.loads(await reply.content.read())
        assert (reply.reason, reply.content_type) == ("OK", "application/octet-stream")  # the server names none
    await reply.release()
    reply.release()
    reply.close()


async def test_a_thread_with_an_event_loop_of_its_own_may_use_a_client_that_keeps_connections(port):
    client = client_of(tree_of(port))

    async def ask() -> int:
        return (await client.post(server_name="tools", url_path="/x", json={})).status

    async with client.kept_connections():
        assert await ask() == 200
        assert await asyncio.to_thread(asyncio.run, ask()) == 200
        assert await ask() == 200


async def test_the_cookies_of_a_reply_are_those_of_the_next_request(port):
    client = client_of(tree_of(port))
    first = await client.post(server_name="tools", url_path="/seed_session", json={})
    assert first.cookies["session"].value == "abc"
    second = await client.post(server_name="tools", url_path="/x", json={}, cookies=first.cookies)
    assert (await echo_of(second))["headers"]["cookie"] == "session=abc"


async def test_headers_ignore_case_and_those_of_a_connection_are_not_passed_on(port):
    passed_on = {"Host": "elsewhere", "Content-Length": "999", "X-Session-Id": "root"}
    reply = await client_of(tree_of(port)).post(server_name="tools", url_path="/x", data=b"{}", headers=passed_on)
    assert reply.headers["set-cookie"] == reply.headers["Set-Cookie"]
    assert reply.headers.getall("Set-Cookie") == ["session=abc; Path=/; HttpOnly"]
    echo = await echo_of(reply)
    assert (echo["headers"]["x-session-id"], echo["body"]) == ("root", "{}")
    assert echo["headers"]["host"] == f"127.0.0.1:{port}"


async def test_the_status_is_not_looked_at_and_its_error_is_aiohttps(port):
    reply = await client_of(tree_of(port)).post(server_name="tools", url_path="/status/503", json={})
    assert (reply.status, reply.ok) == (503, False)
    with pytest.raises(aiohttp.ClientResponseError) as caught:
        await raise_for_status(reply)
    assert json.loads(caught.value.response_content)["path"] == "/status/503"
    assert pickle.loads(pickle.dumps(caught.value)).status == 503


async def test_the_error_of_a_reply_has_aiohttps_name(port):
    reply = await client_of(tree_of(port)).post(server_name="tools", url_path="/status/500", json={})
    with pytest.raises(aiohttp.ClientResponseError) as caught:
        await raise_for_status(reply)
    assert type(caught.value).__name__ == "ClientResponseError"


@pytest.mark.parametrize("error", [RuntimeError("own"), aiohttp.ClientResponseError(MagicMock(), (), status=404)])
async def test_the_error_of_a_response_double_is_raised_with_the_body(error):
    response = MagicMock(ok=False, status=404, read=AsyncMock(return_value=b"gone"))
    response.raise_for_status.side_effect = error
    with pytest.raises(type(error)) as caught:
        await raise_for_status(response)
    assert caught.value is error
    assert caught.value.response_content == b"gone"


async def test_a_response_double_without_an_error_raises_aiohttps():
    response = MagicMock(ok=False, status=404, read=AsyncMock(return_value=b"gone"))
    with pytest.raises(aiohttp.ClientResponseError) as caught:
        await raise_for_status(response)
    assert (caught.value.status, caught.value.response_content) == (404, b"gone")


async def test_a_response_double_may_have_no_more_than_a_status_and_a_body():
    class Response:
        ok, status = False, 503

        async def read(self):
            return b"busy"

    class Streamed:
        ok, status, content = False, 503, Response()

    for response in (Response(), Streamed()):
        with pytest.raises(aiohttp.ClientResponseError) as caught:
            await raise_for_status(response)
        assert (caught.value.status, caught.value.response_content) == (503, b"busy")


async def test_a_client_sends_through_a_double_of_the_modules_request(monkeypatch):
    double = AsyncMock(return_value=MagicMock(ok=True))
    monkeypatch.setattr("nemo_gym.server_utils.request", double)
    params = NeMoGymResponseCreateParamsNonStreaming(input="hi")
    reply = await client_of(tree_of(9)).post(server_name="tools", url_path="/x", json=params, cookies={"a": "b"})
    assert reply is double.return_value
    sent = double.await_args.kwargs
    assert (sent["method"], sent["url"], sent["json"]) == ("POST", "http://127.0.0.1:9/x", {"input": "hi"})
    assert (sent["cookies"], sent["_internal"]) == ({"a": "b"}, True)


async def test_a_client_sends_through_a_double_of_the_shared_client(monkeypatch):
    shared = MagicMock(request=AsyncMock(return_value=MagicMock(ok=True)))
    monkeypatch.setattr("nemo_gym.server_utils.get_global_aiohttp_client", lambda: shared)
    await client_of(tree_of(9)).get(server_name="tools", url_path="/x")
    assert shared.request.await_args.args == ("GET", "http://127.0.0.1:9/x")


async def test_a_server_that_does_not_answer_raises_an_error_of_aiohttp():
    with pytest.raises(aiohttp.ClientError) as caught:
        await client_of(tree_of(1)).post(server_name="tools", url_path="/x", json={})
    assert pickle.loads(pickle.dumps(caught.value)).args == caught.value.args


async def test_an_unknown_server_is_an_error_of_omegaconf(port):
    with pytest.raises(ConfigKeyError, match="no server toolz is running. Did you mean tools"):
        await client_of(tree_of(port)).post(server_name="toolz", url_path="/x")


async def test_a_followed_rollout_stands_in_front_of_paths_of_tools_and_models(port):
    client = client_of(tree_of(port, observability_enabled=True))

    async def path(name: str, url_path: str) -> str:
        return (await echo_of(await client.post(server_name=name, url_path=url_path, json={})))["path"]

    assert await path("tools", "/x") == "/x"
    with rollout_context("3-0"):
        assert await path("tools", "/x") == "/ng-rollout/3-0/x"
        assert await path("policy_model", "/v1/responses") == "/ng-rollout/3-0/v1/responses"
        assert await path("policy_model", "/tokenize") == "/tokenize"
        client = client_of(tree_of(port))
        assert await path("tools", "/x") == "/x"


async def test_calls_to_one_model_server_can_be_redirected(port, monkeypatch):
    monkeypatch.setenv("NEMO_GYM_MODEL_SERVER_NAME", "policy_model")
    monkeypatch.setenv("NEMO_GYM_MODEL_SERVER_BASE_URL", f"http://127.0.0.1:{port}/proxy/v1")
    client = client_of(tree_of(1))
    reply = await client.post(server_name="policy_model", url_path="/v1/responses", json={})
    assert (await echo_of(reply))["path"] == "/proxy/v1/responses"
    assert client._resolve_base_url("tools") == "http://127.0.0.1:1"


def test_the_address_of_a_block_is_read_from_mappings_and_objects():
    client = client_of(tree_of(1))
    assert client._build_server_base_url({"host": "h", "port": 2}) == "http://h:2"
    assert client._build_server_base_url(SimpleNamespace(host="h", port=2)) == "http://h:2"


def test_the_status_of_a_server_is_polled(port):
    assert client_of(tree_of(port)).poll_for_status("tools") == "success"
    assert client_of(tree_of(1)).poll_for_status("tools") == "connection_error"


def test_a_servers_process_asks_no_head(monkeypatch):
    monkeypatch.setenv("NEMO_GYM_CONFIG_DICT", json.dumps({**tree_of(7), "head_server": {"host": "h", "port": 1}}))
    client = ServerClient.load_from_global_config()
    assert client.head_server_config.host == "h"
    assert client._resolve_base_url("tools") == "http://127.0.0.1:7"
    monkeypatch.setenv("NEMO_GYM_CONFIG_DICT", json.dumps({"head_server": {"port": 4}, "default_host": "here"}))
    assert ServerClient.load_head_server_config() == BaseServerConfig(host="here", port=4)


def test_a_mock_of_the_class_has_its_methods_and_no_configuration():
    mock = MagicMock(spec=ServerClient)
    for name in ("get", "post", "request", "_build_server_base_url", "_resolve_base_url", "poll_for_status"):
        assert callable(getattr(mock, name))
    with pytest.raises(AttributeError):
        _ = mock.global_config_dict


def test_ray_is_joined_only_where_it_is_installed(monkeypatch):
    ray = MagicMock()
    ray.is_initialized.return_value = False
    monkeypatch.setitem(__import__("sys").modules, "ray", ray)
    monkeypatch.setenv("NEMO_GYM_CONFIG_DICT", "ray_head_node_address: somewhere")
    initialize_ray()
    assert ray.init.call_args.kwargs["address"] == "somewhere"
