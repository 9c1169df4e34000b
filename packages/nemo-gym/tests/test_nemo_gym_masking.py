"""A masked configuration shows no secret and hides nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ludus_nemo_gym.masking import is_secret_key, masked

SECRETS = "policy_api_key openai_api_key hf_token mlflow_tracking_token password db_password client_secret apiKey"
SECRETS += " AWS_SECRET_ACCESS_KEY authorization key token credentials x-api-key accessToken"
OTHERS = "max_output_tokens tokenizer tokenizer_path token_id_capture return_token_id_information answer_key keys"
OTHERS += " api_key_env eos_token stop_token key_metrics monkey secretary tokens"


@pytest.mark.parametrize("key", SECRETS.split())
def test_the_value_of_a_secret_key_is_masked(key: str):
    assert is_secret_key(key)
    assert masked({"a": {key: "hunter2"}}) == {"a": {key: "***"}}


@pytest.mark.parametrize("key", OTHERS.split())
def test_keys_that_only_resemble_secrets_are_shown(key: str):
    assert masked({key: "value"}) == {key: "value"}


def test_a_secret_is_masked_inside_other_values_too():
    tree = {"policy_api_key": "sk-0123456789", "note": "with sk-0123456789 inside", "list": ["sk-0123456789"], "n": 1}
    assert masked(tree) == {"policy_api_key": "***", "note": "with *** inside", "list": ["***"], "n": 1}
    assert masked({"a": "Bearer abcdefghij"}, ["abcdefghij"]) == {"a": "Bearer ***"}


def test_a_password_in_a_url_is_masked():
    assert masked({"url": "https://me:hunter2@host/v1"}) == {"url": "https://me:***@host/v1"}


def test_numbers_and_mappings_under_a_secret_key_are_masked():
    assert masked({"password": 1234, "credentials": {"user": "a"}}) == {"password": "***", "credentials": "***"}


def test_placeholders_of_secrets_are_shown():
    tree = {"api_key": "${policy_api_key}", "token": "???", "password": None, "secret": ""}
    assert masked(tree) == tree


def test_a_secrets_default_inside_an_interpolation_is_masked():
    assert masked({"api_key": "${oc.env:KEY,sk-0123}"}) == {"api_key": "***"}


@given(st.recursive(st.text() | st.integers(), lambda inner: st.dictionaries(st.text(), inner) | st.lists(inner)))
def test_a_secret_is_masked_in_any_tree(tree: object):
    secret = "sk-a-very-secret-key"
    whole = masked({"tree": tree, "deep": [{"api_key": secret, "said": f"<{secret}>"}]})
    assert secret not in repr(whole)


def test_a_server_that_is_called_password_is_shown_and_its_secrets_are_not() -> None:
    block = {"entrypoint": "app.py", "host": "127.0.0.1", "api_key": "sk-1234567890"}
    tree = {"password": {"resources_servers": {"password": block}}, "url": "http://127.0.0.1/?key=sk-1234567890"}
    shown = {
        "password": {"resources_servers": {"password": {**block, "api_key": "***"}}},
        "url": "http://127.0.0.1/?key=***",
    }
    assert masked(tree) == shown
