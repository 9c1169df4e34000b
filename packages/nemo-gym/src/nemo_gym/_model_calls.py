"""Captured model calls: one line of JSON for each, in one file for each rollout."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

from omegaconf import DictConfig
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from nemo_gym._responses import field_of
from nemo_gym._rollout_files import append_line, read_lines, rollout_file
from nemo_gym.config_types import ModelServerRef
from nemo_gym.global_config import OBSERVABILITY_ENABLED_KEY_NAME, RESULTS_DIR_KEY_NAME
from nemo_gym.rollout_correlation import maybe_rollout_id_from_run_body

log = logging.getLogger("nemo_gym")

#: The key of a rollout's record under which its captured calls stand.
MODEL_CALL_CAPTURE_KEY = "ng_model_call_capture"

_SUFFIX = ".capture.jsonl"
#: The setting of a run that names the folder.
_CAPTURE_DIR = "model_call_capture_dir"
#: Our names of token counts, and the names that the dialects use.
_TOKENS = {
    "input_tokens": ("input_tokens", "prompt_tokens"),
    "output_tokens": ("output_tokens", "completion_tokens"),
    "total_tokens": ("total_tokens",),
}


class ModelCallRecord(BaseModel):
    """One model call: what was asked, what was answered, and how long it took. Fields without a name are kept."""

    model_config = ConfigDict(extra="allow", protected_namespaces=())

    model_call_id: str = Field(default_factory=lambda: uuid4().hex)
    rollout_id: str | None = None
    model_ref: ModelServerRef | None = None
    dialect: str | None = None
    client_session_id: str | None = None
    response_id: str | None = None
    started_at: float | None = None
    completed_at: float | None = None
    duration_ms: float | None = None
    status: str | None = None
    status_code: int | None = None
    error_category: str | None = None
    upstream_attempted: bool | None = None
    upstream_status_code: int | None = None
    response_source: str | None = None
    local_response_reason: str | None = None
    request: Any = None
    response: Any = None


class ModelCallCaptureConfig(BaseModel):
    """Whether model calls are captured, and in which folder."""

    enabled: bool = False
    capture_dir: Path = Path("results/model_calls")

    @classmethod
    def from_config(cls, config: Any) -> ModelCallCaptureConfig:
        """The settings of a run: its switch for observability, and its folder, by default one below its results."""
        named = {key: config.get(key) if _is_mapping(config) else None for key in (_CAPTURE_DIR, RESULTS_DIR_KEY_NAME)}
        folder = named[_CAPTURE_DIR] or Path(str(named[RESULTS_DIR_KEY_NAME] or "results")) / "model_calls"
        return cls(enabled=observability_enabled_from_config(config), capture_dir=Path(str(folder)))


class CaptureStore:
    """The captured calls below a folder. A line is on the disk when `append` returns."""

    def __init__(self, capture_dir: Path | str) -> None:
        self.capture_dir = Path(capture_dir)
        self._lock = threading.Lock()

    def path_for(self, rollout_id: str) -> Path:
        """The file of a rollout; `ValueError` for an id that is no plain file name."""
        return rollout_file(self.capture_dir, rollout_id, _SUFFIX)

    def append(self, record: ModelCallRecord) -> None:
        """Add a call to its rollout. Calls of no rollout are dropped."""
        if record.rollout_id is None:
            return
        path = self.path_for(record.rollout_id)
        with self._lock:
            append_line(path, record.model_dump(mode="json", exclude_none=True))

    def read(self, rollout_id: str) -> list[ModelCallRecord]:
        """The calls of a rollout, in the order in which they ended."""
        return read_model_call_records(self.path_for(rollout_id))

    def rollout_ids(self) -> list[str]:
        """The rollouts with captured calls."""
        return sorted(path.name.removesuffix(_SUFFIX) for path in self.capture_dir.glob(f"*{_SUFFIX}"))


def read_model_call_records(source: CaptureStore | Path | str, rollout_id: str | None = None) -> list[ModelCallRecord]:
    """The captured calls of a file, or of a rollout in a folder. A line that is torn or unreadable is left out."""
    if rollout_id is not None:
        store = source if isinstance(source, CaptureStore) else CaptureStore(source)
        return store.read(rollout_id)
    if isinstance(source, CaptureStore):
        return [record for each in source.rollout_ids() for record in source.read(each)]
    path = Path(source)
    if path.is_dir():
        return read_model_call_records(CaptureStore(path))
    records = []
    for value in read_lines(path):
        try:
            records.append(ModelCallRecord.model_validate(value))
        except ValidationError:
            log.warning("%s has an unreadable line: it is left out", path)
    return records


def aggregate_model_call_metrics(records: Iterable[Any]) -> dict[str, Any]:
    """The number of calls, of failed ones, the sum of their times, and the sums of the tokens that they report."""
    calls = list(records)
    metrics: dict[str, Any] = {
        "num_model_calls": len(calls),
        "num_failed_model_calls": sum(_failed(call) for call in calls),
        "total_latency_ms": sum(_number(field_of(call, "duration_ms")) for call in calls),
    }
    for name, theirs in _TOKENS.items():
        counts = [_number(usage.get(key)) for usage in map(_usage, calls) for key in theirs if key in usage]
        if counts:
            metrics[name] = sum(counts)
    return metrics


def merge_model_call_capture_into_record(*sources: Any, **named: Any) -> dict[str, Any]:
    """Put the captured calls of a rollout into its record, and return the record.

    The arguments, in any order: the record, the calls (a store, its folder, a file or a list) and the id of the
    rollout, which is otherwise that of the record. A rollout without captured calls gets a gap, never an empty success.
    """
    record, source, rollout_id = _merged_parts([*sources, *named.values()])
    rollout_id = rollout_id if rollout_id is not None else maybe_rollout_id_from_run_body(record)
    stored = isinstance(source, (CaptureStore, Path, str))
    by_id = None if isinstance(source, (Path, str)) and Path(source).is_file() else rollout_id
    calls = read_model_call_records(source, by_id) if stored else list(source)
    record[MODEL_CALL_CAPTURE_KEY] = {
        "rollout_id": rollout_id,
        "metrics": aggregate_model_call_metrics(calls),
        "calls": [_plain(call) for call in calls],
        "gaps": [] if calls else [{"code": "model_calls_missing"}],
    }
    return record


def _merged_parts(values: list[Any]) -> tuple[dict[str, Any], Any, str | None]:
    """The record, the calls and the id of the rollout among the arguments."""
    record = next((value for value in values if isinstance(value, dict)), None)
    rest = [value for value in values if value is not record and value is not None]
    texts = [value for value in rest if isinstance(value, str)]
    sources = [value for value in rest if not isinstance(value, str)]
    sources += [texts.pop(texts.index(text)) for text in list(texts) if not sources and Path(text).exists()]
    if record is None or not sources:
        raise TypeError("a capture needs the record of a rollout, and a store, a folder, a file or a list of calls")
    return record, sources[0], texts[0] if texts else None


def observability_enabled_from_config(config: Any = None) -> bool:
    """Whether a run's configuration asks for observation. Anything but a mapping, such as a mock, does not."""
    return bool(_is_mapping(config) and config.get(OBSERVABILITY_ENABLED_KEY_NAME))


def _is_mapping(config: Any) -> bool:
    return isinstance(config, (Mapping, DictConfig))


def _failed(call: Any) -> bool:
    code = field_of(call, "status_code")
    return bool(field_of(call, "error_category")) or (isinstance(code, int) and code >= 400)


def _usage(call: Any) -> Mapping[str, Any]:
    usage = field_of(field_of(call, "response"), "usage")
    if isinstance(usage, BaseModel):
        usage = usage.model_dump()
    return usage if isinstance(usage, Mapping) else {}


def _number(value: Any) -> float:
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else 0


def _plain(call: Any) -> Any:
    return call.model_dump(mode="json", exclude_none=True) if isinstance(call, BaseModel) else call
