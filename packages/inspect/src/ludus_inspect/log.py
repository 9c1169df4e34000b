"""`ludus data export RUN --to inspect`: a run as a log of Inspect, which `inspect view` opens.

A log is a zip archive: a header with the results, a list of summaries, and a file for each sample.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import IO, Any

import orjson
from ludus_data.export.conversation import LeftOut
from ludus_data.export.format import ExportRow, Format, Packed, Unit, Writer
from ludus_data.recorded import Sample

import ludus
from ludus.dialects.chat_items import to_messages
from ludus.errors import Failure
from ludus.runtime.encoding import encode
from ludus_inspect.log_messages import inspect_messages

_VERSION = 2
_SCORER = "reward"
_BY_NAME = ("message", "token", "time", "working", "turn", "context", "cost", "operator", "custom")


class InspectLog(Format):
    """One sample of a log a row."""

    name = "inspect"
    summary = "a log that `inspect view` opens: a rollout is a sample, its repeat the epoch; name it FILE.eval"
    never = ("token ids and logprobs", "seed", "the events of a transcript")
    file = "eval"
    offers = frozenset()

    def rows(self, unit: Unit) -> Iterator[ExportRow]:
        """The sample of a rollout."""
        (sample,) = unit
        if (prompt := sample.prompt) is None:
            raise LeftOut("has no prompt")
        lost: list[str] = []
        try:
            told = inspect_messages(to_messages(prompt, lost=lost))
            messages = told + inspect_messages(to_messages(sample.output, lost=lost), model=_model(sample))
        except (Failure, AttributeError, TypeError, KeyError) as error:
            raise LeftOut("has no form as messages") from error
        if lost:
            self.losses.add(lost, "items")
        yield _sample(sample, told, messages)

    def writer(self, file: IO[bytes]) -> Writer:
        """The archive."""
        return EvalFile(file)


class EvalFile(Writer):
    """A log that grows sample by sample. What sums them up is written last."""

    def __init__(self, file: IO[bytes]) -> None:
        self._archive = zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED)
        self._summaries: list[dict[str, Any]] = []
        self._rewards: list[float] = []
        self._ids: dict[str, None] = {}
        self._epochs = 0
        self._task = self._model = ""

    def write(self, packed: Packed, rows: int) -> None:
        """Add samples."""
        for line in bytes(packed).splitlines():
            row = orjson.loads(line)
            environment = row["metadata"]["environment"]
            self._task = self._task or environment or "ludus"
            self._model = self._model or row["output"]["model"]
            if environment and environment != self._task:  # tasks of two environments may have the same id
                row["id"] = f"{environment}/{row['id']}"
            self._put(f"samples/{row['id']}_epoch_{row['epoch']}.json", row)
            self._ids[row["id"]] = None
            self._epochs = max(self._epochs, row["epoch"])
            self._rewards.append(row["scores"][_SCORER]["value"])
            self._summaries.append({key: row[key] for key in _SUMMARY if key in row} | {"completed": True})

    def finish(self) -> None:
        """Write the results and the list of samples."""
        header = self._header()
        self._put("_journal/start.json", {key: header[key] for key in ("version", "eval", "plan")})
        self._put("summaries.json", self._summaries)
        self._put("header.json", header)
        self._archive.close()

    def abandon(self) -> None:
        """Close the archive."""
        self._archive.close()

    def _header(self) -> dict[str, Any]:
        now = datetime.now(UTC).isoformat()
        count = len(self._rewards)
        mean = sum(self._rewards) / count if count else 0.0
        metric = {"mean": {"name": "mean", "value": mean}}
        score = {"name": _SCORER, "scorer": _SCORER, "scored_samples": count, "metrics": metric}
        ids = list(self._ids)
        return {
            "version": _VERSION,
            "status": "success",
            "eval": {
                "eval_id": f"ludus-{self._task}",
                "run_id": f"ludus-{self._task}",
                "created": now,
                "task": self._task,
                "task_id": self._task,
                "dataset": {"name": self._task, "samples": len(ids), "sample_ids": ids},
                "model": self._model or "none/none",
                "config": {"epochs": max(self._epochs, 1)},
                "packages": {"ludus-gym": ludus.__version__},
            },
            "plan": {"name": "plan", "steps": [], "config": {}},
            "results": {"total_samples": count, "completed_samples": count, "scores": [score]},
            "stats": {"started_at": now, "completed_at": now, "model_usage": {}},
        }

    def _put(self, name: str, content: Any) -> None:
        self._archive.writestr(zipfile.ZipInfo(name), encode(content), zipfile.ZIP_DEFLATED)


#: The fields of a sample that its summary has, too.
_SUMMARY = ("id", "epoch", "input", "target", "metadata", "scores", "model_usage", "total_time", "uuid")


def _model(sample: Sample) -> str:
    model = sample.response.get("model")
    return model if isinstance(model, str) else ""


def _sample(sample: Sample, told: list[dict[str, Any]], messages: list[dict[str, Any]]) -> ExportRow:
    own = sample.row.get("inspect")
    about = own if isinstance(own, dict) else {}
    said = [message for message in messages if message["role"] == "assistant"]
    choices = [{"message": said[-1], "stop_reason": "stop"}] if said else []
    usage = _usage(sample)
    row = {
        "id": sample.task_id,
        "epoch": sample.repeat + 1,
        "uuid": sample.rollout_id,
        "input": told,
        "target": _target(about, sample.row),
        "messages": messages,
        "output": {"model": _model(sample), "choices": choices, **({"usage": usage} if usage else {})},
        "scores": _scores(sample),
        "metadata": sample.origin(),
        "model_usage": {_model(sample): usage} if usage else {},
    }
    timings = sample.row.get("timings")
    if isinstance(timings, dict) and isinstance(total := timings.get("total"), float):
        row["total_time"] = total
    limit = sample.stop_reason.removesuffix("_limit")
    if limit in _BY_NAME and limit != sample.stop_reason:
        row["limit"] = {"type": limit, "limit": 0}
    return row


def _scores(sample: Sample) -> dict[str, Any]:
    parts = sample.row.get("reward_components")
    own = {str(name): {"value": value} for name, value in parts.items()} if isinstance(parts, dict) else {}
    said = {key: sample.row.get(f"score_{key}") for key in ("answer", "explanation")}
    texts = {key: text for key, text in said.items() if isinstance(text, str)}
    return {_SCORER: {"value": sample.scored, **texts}, **own}


def _target(about: dict[str, Any], row: dict[str, Any]) -> Any:
    """What the answer is compared with, where the row says it in one of the usual fields."""
    for value in (about.get("target"), row.get("expected_answer"), row.get("answer")):
        if isinstance(value, str) or (isinstance(value, list) and all(isinstance(part, str) for part in value)):
            return value
    return ""


def _usage(sample: Sample) -> dict[str, int]:
    usage = sample.row.get("usage")
    names = ("input_tokens", "output_tokens", "total_tokens")
    known = {name: usage.get(name) for name in names} if isinstance(usage, dict) else {}
    return {name: count for name, count in known.items() if isinstance(count, int)}
