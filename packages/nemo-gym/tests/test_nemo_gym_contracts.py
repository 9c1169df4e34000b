"""The small modules of `nemo_gym` that servers and agents import: what they accept, refuse and compute."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
from typing import Any

import nemo_gym.failure_kinds
import pytest
from nemo_gym import config_types
from nemo_gym.config_types import (
    AgentServerRef,
    AggregateMetrics,
    AggregateMetricsRequest,
    BaseRunServerInstanceConfig,
    BaseServerConfig,
    DatasetConfig,
    Domain,
    EnvironmentServerRef,
    ModelServerRef,
    ResourcesServerRef,
)
from nemo_gym.episode_types import (
    BaseEpisodeRequest,
    BaseEpisodeResponse,
    EpisodeFailure,
    EpisodeId,
    TaskId,
    is_materialized_task_row,
)
from nemo_gym.failure_kinds import FAILURE_KINDS, is_namespaced, is_registered, validate_failure_kind
from nemo_gym.rollout_correlation import (
    RolloutContextMiddleware,
    current_rollout_id,
    maybe_rollout_id_from_run_body,
    rollout_context,
)
from nemo_gym.rollout_outcomes import RolloutFailure
from nemo_gym.tool_access import DirectHTTPToolAccess, MCPToolAccess, ToolAccess
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

# --- config_types ---


@pytest.mark.parametrize(
    ("ref", "kind"),
    [
        (ModelServerRef, "responses_api_models"),
        (ResourcesServerRef, "resources_servers"),
        (AgentServerRef, "responses_api_agents"),
        (EnvironmentServerRef, "environment_servers"),
    ],
)
def test_a_reference_names_a_server_of_its_type_only(ref: type[BaseModel], kind: str):
    assert ref.model_validate({"type": kind, "name": "x"}).model_dump() == {"type": kind, "name": "x"}
    with pytest.raises(ValidationError):
        ref.model_validate({"type": "other", "name": "x"})
    with pytest.raises(ValidationError):
        ref.model_validate({"name": "x"})


def test_a_server_has_an_address_and_ignores_unknown_keys():
    config = BaseRunServerInstanceConfig.model_validate(
        {"host": "h", "port": 1, "entrypoint": "app.py", "name": "n", "domain": "math", "unknown": 1}
    )
    assert isinstance(config, BaseServerConfig)
    assert config.model_dump() == {
        "host": "h",
        "port": 1,
        "num_workers": None,
        "entrypoint": "app.py",
        "domain": Domain.MATH,
        "name": "n",
    }


def test_domains_are_texts_named_by_their_values():
    values = "math coding agent knowledge instruction_following long_context safety games translation e2e rlhf other"
    assert [domain.value for domain in Domain] == values.split()
    assert all(isinstance(domain, str) and domain.name == domain.value.upper() for domain in Domain)


def test_metrics_default_to_nothing():
    assert AggregateMetrics().model_dump() == {
        "group_level_metrics": [],
        "repeat_level_metrics": [],
        "agent_metrics": {},
        "key_metrics": {},
        "perf_summary": None,
    }
    assert AggregateMetricsRequest(verify_responses=[{"reward": 1}]).verify_responses == [{"reward": 1}]


def test_every_configuration_error_is_a_value_error():
    names = """AgentWithoutEnvironmentServerError AmbiguousEnvironmentServerError AmbiguousAgentRenameError
        AgentCompositionError UnsupportedAgentPairingError UnsupportedModelPairingError UnsupportedAgentOverrideError"""
    for name in names.split():
        assert issubclass(getattr(config_types, name), (config_types.ConfigError,))
        assert issubclass(getattr(config_types, name), ValueError)
    assert not issubclass(config_types.ConfigError, ValueError)


def test_constants_of_paths_and_omegaconf_are_importable():
    assert (config_types.ROLLOUT_PATH_PREFIX, config_types.TOKEN_CAPTURE_PATH_SEGMENT) == (
        "ng-rollout",
        "training-token-capture",
    )
    assert config_types.OmegaConf.create({"a": 1}).a == 1


def test_a_dataset_keeps_keys_without_a_field():
    fields = {"name": "d", "type": "train", "jsonl_fpath": "f", "license": "MIT", "source": {"type": "huggingface"}}
    dataset = DatasetConfig.model_validate(fields)
    assert (dataset.taskset, dataset.num_repeats, dataset.license) == (None, 1, "MIT")
    assert dataset.model_dump()["source"] == {"type": "huggingface"}
    for wrong in ({"type": "other"}, {"num_repeats": 0}):
        with pytest.raises(ValidationError):
            DatasetConfig.model_validate({**fields, **wrong})


# --- failure_kinds ---


def test_failure_kinds_are_constants_with_their_names_in_lower_case():
    constants = {
        name: value for name, value in vars(nemo_gym.failure_kinds).items() if name in map(str.upper, FAILURE_KINDS)
    }
    assert len(FAILURE_KINDS) == len(constants) == 22
    assert all(name.lower() == value and is_registered(value) for name, value in constants.items())


@pytest.mark.parametrize(
    ("name", "expected"),
    [("server:kind", True), ("a1_b:c", True), ("kind", False), ("a:b:c", False), ("A:b", False), ("1a:b", False),
     ("a:", False), ("a:b\n", False)],
)  # fmt: skip
def test_a_namespaced_kind_is_a_server_and_a_kind(name: str, expected: bool):
    assert is_namespaced(name) is expected


def test_an_unknown_kind_is_returned_and_logged_once(caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.WARNING):
        assert [validate_failure_kind("odd_kind_of_this_test") for _ in range(2)] == ["odd_kind_of_this_test"] * 2
        assert validate_failure_kind("judge_failed") == "judge_failed"
        assert validate_failure_kind("mine:kind") == "mine:kind"
    assert [record.getMessage().count("odd_kind_of_this_test") for record in caplog.records] == [1]


def test_failure_kinds_needs_the_standard_library_only():
    file = nemo_gym.failure_kinds.__file__
    code = f"import runpy, sys; runpy.run_path({file!r}); print('pydantic' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


# --- episode_types and rollout_outcomes ---


def test_the_capture_key_names_later_attempts():
    assert EpisodeId(rollout_id="3-1").capture_key == "3-1"
    assert EpisodeId(rollout_id="3-1", attempt=2).capture_key == "3-1-a2"


@pytest.mark.parametrize("rollout_id", ["", "-a", "a/b", "a b", "x-a1", "x-a12", "a\n", "é"])
def test_a_rollout_id_is_plain_and_does_not_end_like_an_attempt(rollout_id: str):
    with pytest.raises(ValidationError):
        EpisodeId(rollout_id=rollout_id)


@pytest.mark.parametrize("rollout_id", ["x-a0", "x-a", "a1", "7._-", "x-a1b"])
def test_other_rollout_ids_are_accepted(rollout_id: str):
    assert EpisodeId(rollout_id=rollout_id).rollout_id == rollout_id


def test_ids_are_hashable_complete_and_without_extras():
    assert len({EpisodeId(rollout_id="a"), EpisodeId(rollout_id="a"), EpisodeId(rollout_id="b")}) == 2
    assert TaskId(taskset="s", task_id="1") == TaskId(taskset="s", task_id="1")
    for fields in ({"taskset": "", "task_id": "1"}, {"taskset": "s", "task_id": "1", "more": 1}):
        with pytest.raises(ValidationError):
            TaskId.model_validate(fields)
    with pytest.raises(ValidationError):
        EpisodeId(rollout_id="a", attempt=-1)
    with pytest.raises(ValidationError):
        TaskId(taskset="s", task_id="1").task_id = "2"


def test_a_failure_leaves_out_an_unknown_kind_and_stage():
    failure = EpisodeFailure(failure_reason="why", terminal=True)
    assert failure.model_dump() == {"failure_reason": "why", "terminal": True}
    known = EpisodeFailure(failure_reason="why", terminal=False, failure_kind="cancelled", stage="seed")
    assert json.loads(known.model_dump_json()) == {
        "failure_reason": "why",
        "terminal": False,
        "failure_kind": "cancelled",
        "stage": "seed",
    }
    with pytest.raises(ValidationError):
        EpisodeFailure(failure_reason="x" * 2001, terminal=True)


def test_an_episode_ends_in_exactly_one_of_result_and_failure():
    ids = {"episode_id": {"rollout_id": "0-0"}, "task_id": {"taskset": "s", "task_id": "0"}}
    failure = {"failure_reason": "why", "terminal": True}
    response = BaseEpisodeResponse[dict[str, int]].model_validate({**ids, "result": {"reward": 1}})
    assert response.result == {"reward": 1}
    assert BaseEpisodeResponse[int].model_validate({**ids, "failure": failure}).failure is not None
    for end in ({}, {"result": 1, "failure": failure}):
        with pytest.raises(ValidationError, match="exactly one"):
            BaseEpisodeResponse[int].model_validate({**ids, **end})
    request = {"episode_id": {"rollout_id": "0-0"}, "task": {"task_id": ids["task_id"], "task_input": "x"}}
    with pytest.raises(ValidationError):
        BaseEpisodeRequest[int].model_validate(request)
    assert BaseEpisodeRequest[str].model_validate(request).task.task_input == "x"


def test_a_materialized_row_has_a_mapping_as_its_id_and_an_input():
    assert is_materialized_task_row({"task_id": {}, "task_input": None})
    assert not is_materialized_task_row({"task_id": "1", "task_input": {}})
    assert not is_materialized_task_row({"task_id": {}})


def test_a_failure_from_the_environment_was_delivered():
    fields = {
        "episode_id": {"rollout_id": "0-0"},
        "run_id": "r",
        "source": "environment",
        "delivery": "delivered",
        "failure": {"failure_reason": "why", "terminal": True},
    }
    assert RolloutFailure.model_validate(fields).schema_version == 1
    assert RolloutFailure.model_validate({**fields, "source": "collector", "delivery": "not_sent"})
    with pytest.raises(ValidationError, match="delivered"):
        RolloutFailure.model_validate({**fields, "delivery": "possibly_delivered"})


# --- tool_access ---


def test_the_kind_of_a_tool_access_selects_its_class():
    adapter: TypeAdapter[Any] = TypeAdapter(ToolAccess)
    direct = adapter.validate_python(
        {"kind": "direct_http", "name": "math.direct_http", "required": True, "base_url": "http://127.0.0.1:1"}
    )
    assert isinstance(direct, DirectHTTPToolAccess)
    assert (direct.cookies, direct.headers) == ({}, {})
    mcp = {"kind": "mcp", "name": "m", "required": False, "connection": {"url": "http://127.0.0.1:1/mcp"}}
    access = adapter.validate_python(mcp)
    assert isinstance(access, MCPToolAccess)
    assert access.connection.transport == "streamable_http"
    for wrong in ({**mcp, "name": "a b"}, {**mcp, "more": 1}, {**mcp, "kind": "other"}, {**mcp, "connection": {}}):
        with pytest.raises(ValidationError):
            adapter.validate_python(wrong)


# --- rollout_correlation ---


def answered(path: str, kind: str = "http", raw: bytes | None = None) -> tuple[Any, ...]:
    """What an application behind the middleware sees of a request."""
    seen: list[tuple[Any, ...]] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(0)
        seen.append((scope.get("path"), scope.get("raw_path"), current_rollout_id()))

    scope = {"type": kind, "path": path} | ({"raw_path": raw} if raw is not None else {})
    asyncio.run(RolloutContextMiddleware(app)(scope, None, None))  # type: ignore[arg-type]
    assert scope["path"] == path
    assert current_rollout_id() is None
    return seen[0]


def test_the_middleware_moves_the_rollout_id_from_the_path_to_the_context():
    assert answered("/ng-rollout/3-1-a2/verify", raw=b"/ng-rollout/3-1-a2/verify") == ("/verify", b"/verify", "3-1-a2")
    assert answered("/ng-rollout/3-1/a b", raw=b"/ng-rollout/3-1/a%20b") == ("/a b", b"/a%20b", "3-1")
    assert answered("/ng-rollout/3-1") == ("/", None, "3-1")


@pytest.mark.parametrize(
    "path", ["/verify", "/ng-rollout", "/ng-rollout/", "/x/ng-rollout/1/verify", "/ng-rollout/a b/x"]
)
def test_other_paths_pass_unchanged(path: str):
    assert answered(path) == (path, None, None)


def test_events_of_the_lifespan_pass_unchanged():
    assert answered("/ng-rollout/1/verify", kind="lifespan")[2] is None


def test_a_rollout_context_ends_with_its_block():
    def fail() -> None:
        with rollout_context("inner"):
            assert current_rollout_id() == "inner"
            raise RuntimeError

    with rollout_context("outer"):
        with pytest.raises(RuntimeError):
            fail()
        assert current_rollout_id() == "outer"
    assert current_rollout_id() is None


def test_the_rollout_id_of_a_run_body():
    indices = {"_ng_task_index": 3, "_ng_rollout_index": 1}
    assert maybe_rollout_id_from_run_body(indices) == "3-1"
    assert maybe_rollout_id_from_run_body({**indices, "_ng_attempt_index": 0}) == "3-1"
    assert maybe_rollout_id_from_run_body({**indices, "_ng_attempt_index": 2}) == "3-1-a2"
    assert maybe_rollout_id_from_run_body({**indices, "_ng_rollout_id": "mine"}) == "mine"
    assert maybe_rollout_id_from_run_body({"_ng_rollout_id": "mine", "_ng_attempt_index": 1}) == "mine-a1"
    assert maybe_rollout_id_from_run_body({"_ng_task_index": 3}) is None
    for wrong in ("a/b", "", 7):
        with pytest.raises(ValueError, match="_ng_rollout_id"):
            maybe_rollout_id_from_run_body({"_ng_rollout_id": wrong})


def test_the_rollout_id_of_a_model():
    class Body(BaseModel):
        model_config = ConfigDict(extra="allow", populate_by_name=True)
        capture_rollout_id: str | None = Field(default=None, alias="_ng_rollout_id", exclude=True)

    assert maybe_rollout_id_from_run_body(Body(capture_rollout_id="mine")) == "mine"
    assert maybe_rollout_id_from_run_body(Body.model_validate({"_ng_task_index": 0, "_ng_rollout_index": 4})) == "0-4"
    assert maybe_rollout_id_from_run_body(Body()) is None
