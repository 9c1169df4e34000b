"""Keys in headers, URLs and settings are never recorded or quoted in an error."""

from __future__ import annotations

import pytest
import servers

import ludus
from ludus import UserError
from ludus.models import open_model
from ludus.runtime.redaction import masked, redacted_settings
from ludus.runtime.urls import shown_url

KEY = "sk-proj-PASTED-123"


def recorded(folder) -> str:
    return "".join(path.read_text() for path in folder.iterdir())


def test_header_values_are_not_recorded(server, counter, rows, tmp_path):
    settings = {"model.headers": {"x-api-key": KEY}}
    ludus.collect(counter, model=f"{server.url}#m", input=rows(1), output=tmp_path, settings=settings)
    assert f"x-api-key: {KEY}".encode() in server.headers[0]
    assert KEY not in recorded(tmp_path)
    assert '"x-api-key": "***"' in (tmp_path / "run.json").read_text()


def test_the_query_of_a_url_is_sent_with_each_request_and_not_recorded(server, counter, rows, tmp_path):
    server.routes = {f"/v1/responses?api-key={KEY}&v=2"}
    model = f"{server.url}/?api-key={KEY}&v=2#m"
    result = ludus.collect(counter, model=model, input=rows(1), output=tmp_path)
    assert result.metrics["counts"]["completed"] == 1
    assert result.metrics["model"]["endpoints"][0]["url"] == f"{server.url}/?api-key=***&v=***"
    assert KEY not in recorded(tmp_path)


def test_an_azure_url_keeps_its_query(server, counter, rows, monkeypatch):
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", KEY)
    server.routes = {"/openai/responses?api-version=1&code=abc"}
    settings = {"model.base_url": f"{server.url.removesuffix('/v1')}?code=abc", "model.api_version": "1"}
    result = ludus.collect(counter, model="azure:d", input=rows(1), settings=settings)
    assert result.metrics["counts"]["completed"] == 1


def test_the_error_about_an_unreachable_endpoint_masks_its_query(counter, rows):
    with pytest.raises(UserError, match=r"cannot reach http://127\.0\.0\.1:9/v1\?k=\*\*\*") as caught:
        ludus.collect(counter, model=f"http://127.0.0.1:9/v1?k={KEY}#m", input=rows(20))
    assert KEY not in str(caught.value)


@pytest.mark.parametrize(
    "spec", [f"http://me:{KEY}@HOST/v1#m", f"vllm:http://{KEY}@HOST/v1#m", f"http://me:{KEY}@H/v1"]
)
def test_a_password_in_a_url_is_refused_and_not_quoted(spec):
    with pytest.raises(UserError) as caught:
        open_model(spec)
    assert KEY not in str(caught.value)
    if "#" in spec:
        assert "must not hold a password. Put it into model.headers or into a key" in str(caught.value)


@pytest.mark.parametrize(
    ("spec", "setting"), [("http://HOST/v1#m", "api_key_env"), ("azure:d", "api_key_env"), ("azure:d", "token_env")]
)
def test_a_key_instead_of_the_name_of_its_variable_is_refused_and_not_quoted(spec, setting, monkeypatch):
    monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", "http://HOST")
    with pytest.raises(UserError, match="is not the name of an environment variable") as caught:
        open_model(spec, {setting: KEY})
    assert KEY not in str(caught.value)


@pytest.mark.parametrize("control", ["\n", "\r\n", "\0", "\x7f"])
def test_a_key_or_header_with_control_characters_is_named_and_not_quoted(monkeypatch, control):
    broken = KEY.replace("-123", f"{control}123")
    for settings, named in (
        ({"headers": {"x-api-key": broken}}, "the header 'x-api-key'"),
        ({"headers": {f"x{control}": "a"}}, "the header "),
        ({"api_key_env": "MY_KEY"}, "the key in MY_KEY"),
    ):
        if control != "\0":
            monkeypatch.setenv("MY_KEY", broken)
        elif "api_key_env" in settings:
            continue
        with pytest.raises(UserError, match=f"{named}.* holds a line break or another control") as caught:
            open_model("http://HOST/v1#m", settings)
        assert KEY[:14] not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://HOST:80/v1", "http://HOST:80/v1"),
        ("http://a:b@HOST/v1", "http://***@HOST/v1"),
        ("http://HOST/@v1", "http://HOST/@v1"),
        ("http://HOST/v1?a=b=c&d&e=", "http://HOST/v1?a=***&***&e=***"),
        ("not a url", "not a url"),
    ],
)
def test_a_shown_url_masks_passwords_and_query_values(url, shown):
    assert shown_url(url) == shown


def test_recorded_settings_mask_keys_at_any_depth_and_keep_other_values():
    class Config(ludus.ResourcesConfig):
        judge: dict = {"headers": {"x-api-key": KEY}, "base_url": [f"http://h/v1?code={KEY}&v=1"]}
        prompt: str = "Is it right? See http://h/?a=b & say so."
        words: set[str] = {"gamma", "alpha", "beta"}

    shown = redacted_settings(Config())
    assert shown["judge"] == {"headers": {"x-api-key": "***"}, "base_url": ["http://h/v1?code=***&v=***"]}
    assert shown["prompt"] == Config().prompt
    assert shown["words"] == ["alpha", "beta", "gamma"]


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://h/v1?api-key=K123456#judge-A", "http://h/v1?api-key=***#judge-A"),
        ("http://h/v1#m?x", "http://h/v1#m?x"),
        ("HTTP://u:p@h:1/v1?K123456", "HTTP://***@h:1/v1?***"),
    ],
)
def test_a_shown_url_keeps_the_model_name_and_masks_keys(url, shown):
    assert shown_url(url) == shown
    assert masked({"judge": url, "spec": f"openai:{url}"}) == {"judge": shown, "spec": f"openai:{shown}"}


def test_values_of_keys_and_tokens_are_masked_and_names_of_variables_are_not():
    given = {"api_key": KEY, "extra": {"hf_token": KEY, "max_tokens": 5}, "env": {"A": KEY}, "api_key_env": "NAME"}
    assert masked(given) == {
        "api_key": "***",
        "extra": {"hf_token": "***", "max_tokens": 5},
        "env": {"A": "***"},
        "api_key_env": "NAME",
    }


def test_a_provider_error_that_quotes_a_header_or_the_query_is_masked(server, counter, rows, tmp_path):
    async def echoing(path, body, writer):
        return await servers.send(
            writer, 403, b'{"error": {"message": "no: %s in %s"}}' % (KEY.encode(), path.encode())
        )

    server.respond = echoing
    settings = {"model.headers": {"x-api-key": KEY}}
    model = f"{server.url}?code=QUERY-123456#m"
    with pytest.raises(UserError) as caught:
        ludus.collect(counter, model=model, input=rows(8), output=tmp_path, settings=settings)
    for text in (str(caught.value), recorded(tmp_path)):
        assert "***" in text
        assert KEY not in text
        assert "QUERY-123456" not in text


def test_an_empty_api_key_env_sends_no_key_and_env_yaml_allows_any_name(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "env.yaml").write_text(f"my-vllm.key: {KEY}\n")
    assert open_model("http://h/v1#m", {"api_key_env": ""})._key == ""
    assert open_model("http://h/v1#m", {"api_key_env": "my-vllm.key"})._key == KEY
