"""The small modules of `nemo_gym` that servers and agents import: what they accept, refuse and compute."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
from enum import Enum
from pathlib import Path
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
from nemo_gym.deliverables import IGNORE_FILES, is_deliverable
from nemo_gym.episode_types import (
    BaseEpisodeRequest,
    BaseEpisodeResponse,
    EpisodeFailure,
    EpisodeId,
    TaskId,
    is_materialized_task_row,
)
from nemo_gym.failure_kinds import FAILURE_KINDS, is_namespaced, is_registered, validate_failure_kind
from nemo_gym.path_utils import aggregate_metrics_path_for, failures_path_for, materialized_path_for
from nemo_gym.prompt import PromptConfig, apply_prompt_to_row, fill_prompt, load_prompt_config
from nemo_gym.rollout_correlation import (
    RolloutContextMiddleware,
    current_rollout_id,
    maybe_rollout_id_from_run_body,
    rollout_context,
)
from nemo_gym.rollout_outcomes import RolloutFailure
from nemo_gym.skills import stage_skills
from nemo_gym.task_data import (
    TaskDataSchemaError,
    TaskDataValidator,
    find_server_dir,
    load_task_data_schema,
    normalize_task_fields,
    validate_jsonl_rows,
)
from nemo_gym.task_materialization import materialize_task
from nemo_gym.tool_access import DirectHTTPToolAccess, MCPToolAccess, ToolAccess
from nemo_gym.verifier_fixture import (
    VerifierFixture,
    VerifierFixtureError,
    VerifierFixtureResult,
    exercise_verifier_fixture,
)
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


# --- files ---


def test_the_files_of_a_collection_lie_beside_its_rollouts():
    output = Path("results/run.v1.jsonl")
    assert failures_path_for(output) == Path("results/run.v1_failures.jsonl")
    assert aggregate_metrics_path_for(output) == Path("results/run.v1_aggregate_metrics.json")
    assert materialized_path_for(output) == Path("results/run.v1_materialized_inputs.jsonl")


def test_skills_are_copied_to_a_new_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "skills" / "sums").mkdir(parents=True)
    (tmp_path / "skills" / "sums" / "SKILL.md").write_text("add")
    monkeypatch.setenv("NEMO_GYM_EXTRA_ROOTS", str(tmp_path))
    stage_skills("skills", tmp_path / "out" / "skills")
    assert (tmp_path / "out" / "skills" / "sums" / "SKILL.md").read_text() == "add"
    with pytest.raises(FileExistsError):
        stage_skills(str(tmp_path / "skills"), tmp_path / "out" / "skills")
    for source in ("absent", "skills/sums/SKILL.md"):
        with pytest.raises(ValueError, match=source):
            stage_skills(source, tmp_path / "other")


def test_a_deliverable_is_a_file_that_is_no_record_of_the_run(tmp_path: Path):
    (tmp_path / "answer.txt").touch()
    (tmp_path / "log.txt").touch()
    (tmp_path / "folder").mkdir()
    assert [path.name for path in tmp_path.iterdir() if is_deliverable(path)] == ["answer.txt"]
    assert len(IGNORE_FILES) == 7


# --- prompt ---


def test_a_prompt_is_filled_by_the_format_language_of_python():
    config = PromptConfig(system="Be {tone}.", user="{{{question!r:>5}}} {options[1]}")
    row = {"tone": "brief", "question": "x", "options": ["a", "b"]}
    assert fill_prompt(config, row) == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "{  'x'} b"},
    ]
    assert [message["role"] for message in fill_prompt(PromptConfig(user="hi"), {})] == ["user"]
    with pytest.raises(KeyError, match="tone.*options, question"):
        fill_prompt(config, {"question": 1, "options": 2})


def test_a_row_gets_its_prompt_and_keeps_everything_else():
    row = {"question": "x", "responses_create_params": {"input": "old", "temperature": 1}}
    filled = apply_prompt_to_row(row, PromptConfig(user="{question}?"))
    assert filled["responses_create_params"] == {"input": [{"role": "user", "content": "x?"}], "temperature": 1}
    assert filled["question"] == "x"
    assert row["responses_create_params"] == {"input": "old", "temperature": 1}
    assert apply_prompt_to_row({}, PromptConfig(user="hi"))["responses_create_params"]["input"][0]["content"] == "hi"


def test_a_prompt_file_is_searched_in_the_roots_and_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    file = tmp_path / "prompts" / "math.yaml"
    file.parent.mkdir()
    file.write_text("user: '{question}'\n")
    monkeypatch.setenv("NEMO_GYM_EXTRA_ROOTS", str(tmp_path))
    config = load_prompt_config("prompts/math.yaml")
    assert config == PromptConfig(user="{question}")
    assert load_prompt_config(str(file)) is config
    with pytest.raises(FileNotFoundError, match="absent.yaml"):
        load_prompt_config("absent.yaml")


# --- task_materialization ---


def test_a_row_is_materialized_under_its_own_id_or_its_index():
    row = {"problem_id": 7, "task_id": None, "question": "x", "agent_ref": {}, "task_source": "s", "skills_ref": {}}
    assert materialize_task({**row, "_ng_rollout_index": 1}, taskset="t") == {
        "task_id": {"taskset": "t", "task_id": "7"},
        "task_input": {"problem_id": 7, "task_id": None, "question": "x"},
    }
    assert materialize_task({"_ng_task_index": 4}, taskset="t", task_index=9)["task_id"]["task_id"] == "4"
    assert materialize_task({}, taskset="t", task_index=0)["task_id"]["task_id"] == "0"
    for index in (None, -1, True, "3"):
        with pytest.raises(ValueError, match="index"):
            materialize_task({}, taskset="t", task_index=index)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="materialized already"):
        materialize_task({"task_id": {"taskset": "t", "task_id": "1"}, "task_input": {}}, taskset="t")


# --- task_data ---

SCHEMA = """
from __future__ import annotations
from pydantic import BaseModel, ConfigDict, Field

class Part(BaseModel):
    size: int

class TaskData(BaseModel):
    model_config = ConfigDict(extra="allow")
    question: str
    part: Part | None = None
    answer: str | None = Field(default=None, json_schema_extra={"legacy_location": "verifier_metadata"})
"""


@pytest.fixture
def adapter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TypeAdapter[Any]:
    folder = tmp_path / "resources_servers" / "sums"
    folder.mkdir(parents=True)
    (folder / "task_data.py").write_text(SCHEMA)
    monkeypatch.setenv("NEMO_GYM_EXTRA_ROOTS", str(tmp_path))
    server = find_server_dir("sums")
    assert server == folder
    schema = load_task_data_schema(server)
    assert schema is not None
    return schema


def test_a_schema_is_the_task_data_of_a_folder(tmp_path: Path):
    assert load_task_data_schema(tmp_path) is None
    assert find_server_dir("absent") is None
    for content in ("x = 1", "raise RuntimeError('no')", "TaskData = 5", "syntax error"):
        (tmp_path / "task_data.py").write_text(content)
        with pytest.raises(TaskDataSchemaError, match="task_data.py"):
            load_task_data_schema(tmp_path)
    (tmp_path / "task_data.py").write_text("TaskData = dict[str, int]")
    schema = load_task_data_schema(tmp_path)
    assert schema is not None
    assert schema.validate_python({"a": "1"}) == {"a": 1}


def test_task_fields_are_flattened_and_unequal_duplicates_are_conflicts():
    row = {
        "responses_create_params": {},
        "agent_ref": {},
        "task_source": "s",
        "_ng_task_index": 0,
        "_ng_rollout_index": 0,
        "a": 1,
        "verifier_metadata": {"a": 2, "b": 3, "c": 4},
        "task_data": {"b": 5, "c": 4, "d": 6},
    }
    assert normalize_task_fields(row) == ({"a": 1, "b": 3, "c": 4, "d": 6}, ["a", "b"])
    assert normalize_task_fields({"verifier_metadata": "text"}) == ({"verifier_metadata": "text"}, [])
    assert row["verifier_metadata"] == {"a": 2, "b": 3, "c": 4}


def test_a_dataset_is_checked_row_by_row(adapter: TypeAdapter[Any]):
    validator = TaskDataValidator("sums", adapter, "data.jsonl")
    validator.validate_row(0, {"question": "x", "verifier_metadata": {"answer": "1"}})
    validator.validate_row(1, {"task_id": {"taskset": "t", "task_id": "1"}, "task_input": {"question": "x"}})
    assert validator.report.clean
    validator.validate_row(2, {"question": "x", "task_data": {}, "answer": "1"})
    assert validator.report.clean
    validator.validate_row(3, {"question": "x", "answer": "1", "extra": 1})
    validator.validate_row(4, {"question": "x", "task_data": {"question": "y"}})
    validator.validate_row(5, {"part": {"size": "many"}})
    report = validator.report
    assert (report.rows, report.error_rows, report.clean) == (6, 1, False)
    assert dict(report.unknown_keys) == {"extra": 1}
    assert dict(report.conflicting_keys) == {"question": 1}
    assert dict(report.misplaced_keys) == {"answer": 1}
    assert "row 5" in report.errors[0]
    for text in ("data.jsonl", "sums", "6 rows", "part.size", "unknown keys: extra", "misplaced keys: answer"):
        assert text in report.summary()


def test_a_file_keeps_the_texts_of_five_errors(adapter: TypeAdapter[Any]):
    lines = ['{"question": "x"}', "", "[1]", "{", *["{}"] * 5]
    report = validate_jsonl_rows("sums", adapter, "data.jsonl", lines)
    assert (report.rows, report.error_rows, len(report.errors)) == (8, 7, 5)


# --- verifier_fixture ---


class Answer(BaseModel):
    answer: str


class Verifier:
    """Rewards the answer "4", and draws a reward for "random"."""

    def __init__(self) -> None:
        self.seed = 0.75

    async def verify(self, body: Answer) -> dict[str, float]:
        if body.answer == "crash":
            raise RuntimeError("the judge is away")
        rewards = {"4": 1.0, "random": self.seed, "much": 2.0, "nan": float("nan")}
        return {"reward": rewards.get(body.answer, 0.0)}


FULL = {"name": "right", "kind": "full_reward", "request": {"answer": "4"}, "expected_reward": 1.0}
ZERO = {"name": "wrong", "kind": "zero_reward", "request": {"answer": "5"}, "expected_reward": 0.0}
MALFORMED = {"name": "empty", "kind": "malformed", "request": {}, "expected_error": "Field required"}
SEEDED = {"name": "drawn", "kind": "determinism", "request": {"answer": "random"}, "expected_reward": 0.5}


def reseed(server: Any, request: Any) -> None:
    server.seed = 0.5


def exercised(folder: Path, cases: list[dict[str, Any]], determinism: Any = "unknown", **options: Any) -> Any:
    path = folder / "cases.jsonl"
    path.write_text("".join(json.dumps(case) + "\n" for case in cases))
    fields = {key: options.pop(key) for key in ("invoke", "reseed") if key in options}
    fixture = VerifierFixture(Verifier, Answer, path, **fields)
    options = {"reward_range": (0.0, 1.0), **options}
    return asyncio.run(exercise_verifier_fixture(fixture, determinism=determinism, **options))


def test_a_verifier_that_does_what_its_cases_say_passes(tmp_path: Path):
    seeded = Enum("seeded", {"SEEDED": "seeded"}).SEEDED
    assert exercised(tmp_path, [FULL, ZERO, MALFORMED, SEEDED], seeded, reseed=reseed) == (
        VerifierFixtureResult("right", "full_reward", (1.0,)),
        VerifierFixtureResult("wrong", "zero_reward", (0.0,)),
        VerifierFixtureResult("empty", "malformed", ()),
        VerifierFixtureResult("drawn", "determinism", (0.5, 0.5)),
    )
    skipped = exercised(tmp_path, [FULL, ZERO, MALFORMED, SEEDED], "stochastic")
    assert [result.name for result in skipped] == ["right", "wrong", "empty"]


def test_a_verifier_may_be_called_by_a_function_and_may_reward_low_values(tmp_path: Path):
    cases = [{**FULL, "expected_reward": 0}, {**ZERO, "expected_reward": 1}, MALFORMED]
    results = exercised(tmp_path, cases, higher_is_better=False, invoke=lambda _, request: float(request.answer != "4"))
    assert [result.observed_rewards for result in results] == [(0.0,), (1.0,), ()]


@pytest.mark.parametrize(
    ("cases", "problem"),
    [
        ([FULL, ZERO], "no case of kind malformed"),
        ([FULL, FULL, ZERO, MALFORMED], "two cases are called right"),
        ([{**FULL, "more": 1}, ZERO, MALFORMED], "cases.jsonl:1: more"),
        ([{**FULL, "expected_error": "x"}, ZERO, MALFORMED], "needs expected_reward and no expected_error"),
        ([FULL, ZERO, {**MALFORMED, "expected_reward": 1}], "needs expected_error and no expected_reward"),
        ([{**FULL, "request": {"answer": "5"}, "expected_reward": 0}, ZERO, MALFORMED], "right: reward 0.0, but"),
        ([FULL, {**ZERO, "request": {"answer": "random"}, "expected_reward": 0.75}, MALFORMED], "wrong: reward 0.75"),
        ([{**FULL, "expected_reward": 0.5}, ZERO, MALFORMED], "reward 1.0, expected 0.5"),
        ([{**FULL, "request": {"answer": "much"}}, ZERO, MALFORMED], "not between 0.0 and 1.0"),
        ([{**FULL, "request": {"answer": "nan"}}, ZERO, MALFORMED], "not a finite number"),
        ([{**FULL, "request": {"answer": "crash"}}, ZERO, MALFORMED], "RuntimeError: the judge is away"),
        ([FULL, ZERO, {**MALFORMED, "request": {"answer": "4"}}], "verified without an error"),
        ([FULL, ZERO, {**MALFORMED, "expected_error": "other words"}], "lacks 'other words'"),
    ],
)
def test_each_problem_of_a_fixture_is_an_error(tmp_path: Path, cases: list[dict[str, Any]], problem: str):
    with pytest.raises(VerifierFixtureError, match=problem):
        exercised(tmp_path, cases)


def test_a_seeded_verifier_needs_its_cases_and_repeats_its_rewards(tmp_path: Path):
    with pytest.raises(VerifierFixtureError, match="no case of kind determinism"):
        exercised(tmp_path, [FULL, ZERO, MALFORMED], "seeded")
    with pytest.raises(VerifierFixtureError, match="no reseed"):
        exercised(tmp_path, [FULL, ZERO, MALFORMED, SEEDED], "seeded")
    seeds = iter([0.5, 0.25])

    async def drift(server: Any, request: Any) -> None:
        server.seed = next(seeds)

    with pytest.raises(VerifierFixtureError, match="0.5 and 0.25"):
        exercised(tmp_path, [FULL, ZERO, MALFORMED, SEEDED], "seeded", reseed=drift, update_expected=True)
    with pytest.raises(VerifierFixtureError, match="'often'"):
        exercised(tmp_path, [FULL, ZERO, MALFORMED], "often")


def test_expected_rewards_are_rewritten_on_demand(tmp_path: Path):
    cases = [FULL, ZERO, MALFORMED, {**SEEDED, "expected_reward": 0.1}]
    exercised(tmp_path, cases, "seeded", reseed=reseed, update_expected=True)
    lines = (tmp_path / "cases.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [FULL, ZERO, MALFORMED, SEEDED]
    assert [path.name for path in tmp_path.iterdir()] == ["cases.jsonl"]
