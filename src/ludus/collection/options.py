"""The options of a collection: each is one field, with its type, its default, its limits and its help text.

The options of `ludus collect` and the keyword arguments of `ludus.collect` are made of these fields. `Options` holds
them in parts, and is passed whole from the call to the worker process. `ludus --help` reads the fields, so nothing of
the library is imported here before a value is checked.
"""

# ruff: noqa: RUF009  (`option` returns the field of a dataclass)

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypedDict, Unpack

from ludus.runtime.numbers import whole_number
from ludus.runtime.option_limits import MAX_COUNT, MAX_INT64, MAX_WORKERS

if TYPE_CHECKING:
    from ludus.model import Model
    from ludus.prompt import PromptTemplate


@dataclass(frozen=True)
class OptionText:
    """How a command takes an option. `flags` are its spellings, by default its name. `typed` is its type there, by
    default the field's; `parse` makes the option's value of it. `least` holds in Python too; `most` does not."""

    help: str
    flags: tuple[str, ...] = ()
    metavar: str | None = None
    typed: Any = None
    parse: Callable[[Any], Any] | None = None
    least: int | None = None
    most: int | None = None


def option(default: Any, help: str, *flags: str, **text: Any) -> Any:
    """A field of a part of the options."""
    return field(default=default, metadata={"text": OptionText(help, flags, **text)})


def _parse_settings(assignments: list[str]) -> dict[str, Any]:
    from ludus.runtime.settings import parse_assignments

    return parse_assignments(assignments)


def _parse_mix(text: str) -> dict[str, float]:
    from ludus.data.mixing import parse_mix

    return parse_mix(text)


def _parse_concurrency(text: str) -> int | Literal["auto"]:
    from ludus.errors import UserError

    if text == "auto":
        return "auto"
    number = whole_number(text) or 0
    if not 1 <= number <= MAX_COUNT:
        problem = f"--concurrency {text:.40} is neither auto nor a number from 1 to {MAX_COUNT:,}"
        raise UserError(problem, "Example: --concurrency 64")
    return number


@dataclass(frozen=True)
class RowOptions:
    """Which rows are played."""

    title: ClassVar[str] = "What to play"

    input: str | Path | Iterable[dict[str, Any]] | None = option(
        None, "JSONL, JSON, CSV, Parquet, - or hf:OWNER/NAME; default: example rows.", "--input", "-i", typed=Path
    )
    dataset: str | None = option(None, "Which dataset to use.", "--dataset", "-d")
    limit: int | None = option(None, "Use only the first N rows.", least=1, most=MAX_INT64)
    prompt: "str | Path | dict[str, Any] | PromptTemplate | None" = option(
        None, "A template with {field}, for rows without a prompt.", metavar="FILE|TEXT", typed=str
    )
    mix: dict[str, float] | None = option(
        None,
        "Weights of several --env; --limit is then for all rows together.",
        metavar="ENV=WEIGHT,...",
        typed=str,
        parse=_parse_mix,
    )
    shard: str | None = option(None, "Run only the I-th of N shards; join them with ludus merge.", metavar="I/N")
    branch: str | Path | None = option(None, "Continue the rollouts in FILE.", metavar="FILE", typed=Path)
    turn: int | None = option(None, "With --branch: cut after K model calls; -1: before the last one.", metavar="K")


@dataclass(frozen=True)
class PlayOptions:
    """How a rollout is played."""

    title: ClassVar[str] = "How to play"

    model: "str | Model" = option(
        "local", "local, openai:NAME, URL#NAME, scripted:FILE or scripted:mod:func.", "--model", "-m", typed=str
    )
    repeats: int = option(1, "Rollouts per task.", "--repeats", "-n", least=1, most=MAX_COUNT)
    settings: dict[str, Any] | None = option(
        None,
        "A setting of resources, agent, model, limits or data.",
        "--set",
        metavar="[ENV.]PART.KEY=VALUE",
        typed=list[str],
        parse=_parse_settings,
    )
    seed: int = option(0, "The seed of the run; each rollout gets one of its own.", least=-MAX_INT64, most=MAX_INT64)
    tokens: bool = option(False, "Request token ids; mask rollouts without them.")
    resources: str | None = option(None, "Use resources on a server (ludus serve).", metavar="URL")
    agent: str | None = option(None, "Run rollouts on an agent server, with its model.", metavar="URL")
    chaos: str | None = option(None, "Inject faults, and check the records at the end.", metavar="FAULT=RATE,...")

    @property
    def model_settings(self) -> dict[str, Any]:
        """The settings of the model, without `model.` in front."""
        return {key[6:]: value for key, value in (self.settings or {}).items() if key.startswith("model.")}

    @property
    def environment_settings(self) -> dict[str, Any]:
        """The settings of the environments."""
        return {key: value for key, value in (self.settings or {}).items() if not key.startswith("model.")}


@dataclass(frozen=True)
class EngineOptions:
    """Where rollouts are played, and how many at once."""

    title: ClassVar[str] = "Where to play"

    concurrency: int | Literal["auto"] | None = option(
        None,
        "Rollouts in flight, or auto; default: depends on the model.",
        "--concurrency",
        "-c",
        typed=str,
        parse=_parse_concurrency,
        least=1,
    )
    workers: int | None = option(
        None, "Processes that play rollouts; default: 1.", "--workers", "-w", least=1, most=MAX_WORKERS
    )
    ray: str | None = option(None, "Play rollouts on a Ray cluster (docs/ray.md).", metavar="ADDRESS|local")
    ray_env: str | Path | dict[str, Any] | None = option(
        None, "With --ray: a runtime environment for the nodes, as YAML.", metavar="FILE", typed=Path
    )

    @property
    def is_adaptive(self) -> bool:
        """Whether the number of rollouts in flight adapts to the model."""
        return self.concurrency == "auto"

    @property
    def has_workers(self) -> bool:
        """Whether other processes play the rollouts."""
        return self.ray is not None or (self.workers or 1) > 1


@dataclass(frozen=True)
class StopOptions:
    """When a rollout is not played again, or not waited for."""

    title: ClassVar[str] = "When to stop"

    max_attempts: int = option(3, "Attempts per rollout over all resumes.", least=1, most=MAX_COUNT)
    enough: int | None = option(None, "End a task's slower rollouts once N have ended well.", least=1, most=MAX_COUNT)
    group_deadline: float | None = option(
        None, "End a task's rollouts this long after the first one began.", metavar="SECONDS"
    )
    max_staleness: int | None = option(
        None, "End rollouts more than N policy versions behind.", least=0, most=MAX_INT64
    )

    @property
    def by_task(self) -> bool:
        """Whether the rollouts of a task depend on each other, so that one process must play them."""
        return self.enough is not None or self.group_deadline is not None

    @property
    def limits(self) -> dict[str, Any]:
        """The limits of rollouts that are not waited for, by name, as far as they are set."""
        values = {name: getattr(self, name) for name in ("enough", "group_deadline", "max_staleness")}
        return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True)
class OutputOptions:
    """Which files are written."""

    title: ClassVar[str] = "What to write"

    output: str | Path | None = option(
        None, "A folder, or a file X.jsonl; default: runs/ENV-TIME.", "--output", "-o", typed=Path
    )
    resume: bool = option(False, "Continue a collection; retry failed rollouts.")
    force: bool = option(False, "With --resume: ignore changed settings or data.")
    accept_new_verifier: bool = option(False, "With --resume: continue even if the verifier changed.")
    overwrite: bool = option(False, "Replace an existing collection.")
    checkpoint: bool | None = option(
        None, "Save each turn for --resume; default: where possible.", "--checkpoint/--no-checkpoint"
    )


@dataclass(frozen=True)
class TelemetryOptions:
    """Who else is told about the run."""

    title: ClassVar[str] = "What to send"

    otel: bool = option(False, "Send OpenTelemetry spans, as the OTEL_* variables say.")
    metrics_port: int | str | None = option(
        None, "Serve metrics for Prometheus; 0 takes a free port.", metavar="[HOST:]PORT", typed=str
    )
    log_to: str | Sequence[str] | None = option(
        None, "Write charts to wandb, mlflow or tensorboard; may be repeated.", metavar="NAME[:ARG]", typed=list[str]
    )


class CollectArguments(TypedDict, total=False):
    """The options as keyword arguments, for editors and type checkers. A test compares them with the fields."""

    input: str | Path | Iterable[dict[str, Any]] | None
    dataset: str | None
    limit: int | None
    prompt: "str | Path | dict[str, Any] | PromptTemplate | None"
    mix: dict[str, float] | None
    shard: str | None
    branch: str | Path | None
    turn: int | None
    model: "str | Model"
    repeats: int
    settings: dict[str, Any] | None
    seed: int
    tokens: bool
    resources: str | None
    agent: str | None
    chaos: str | None
    concurrency: int | Literal["auto"] | None
    workers: int | None
    ray: str | None
    ray_env: str | Path | dict[str, Any] | None
    max_attempts: int
    enough: int | None
    group_deadline: float | None
    max_staleness: int | None
    output: str | Path | None
    resume: bool
    force: bool
    accept_new_verifier: bool
    overwrite: bool
    checkpoint: bool | None
    otel: bool
    metrics_port: int | str | None
    log_to: str | Sequence[str] | None


class Options:
    """The options of a collection, in parts. The keyword arguments are the fields of all parts.

    options = Options(model="local", repeats=4, output="runs/first")
    options.play.repeats
    """

    PARTS: ClassVar[dict[str, type[Any]]] = {
        "rows": RowOptions,
        "play": PlayOptions,
        "engine": EngineOptions,
        "stop": StopOptions,
        "files": OutputOptions,
        "telemetry": TelemetryOptions,
    }

    rows: RowOptions
    play: PlayOptions
    engine: EngineOptions
    stop: StopOptions
    files: OutputOptions
    telemetry: TelemetryOptions

    def __init__(self, **values: Unpack[CollectArguments]) -> None:
        """Refuse unknown names, invalid values and combinations."""
        unknown: dict[str, Any] = {**values}
        for part, kind in self.PARTS.items():
            names = (spec.name for spec in fields(kind))
            setattr(self, part, kind(**{name: unknown.pop(name) for name in names if name in unknown}))
        if unknown:
            _refuse(next(iter(unknown)))
        _check(self)

    @classmethod
    def all(cls) -> list[tuple[type[Any], Field[Any], OptionText]]:
        """Every option: its part, its field and how a command takes it."""
        return [(kind, spec, spec.metadata["text"]) for kind in cls.PARTS.values() for spec in fields(kind)]

    def values(self) -> dict[str, Any]:
        """The value of every option by name."""
        return {name: value for part in self.PARTS for name, value in vars(getattr(self, part)).items()}

    def replace(self, **changes: Unpack[CollectArguments]) -> Self:
        """The same options with other values."""
        changed: Any = {**self.values(), **changes}
        return type(self)(**changed)


def _refuse(name: str) -> None:
    from ludus.errors import UserError, did_you_mean

    known = [spec.name for _, spec, _ in Options.all()]
    raise UserError(f"a collection has no option `{name}`", did_you_mean(name, known))


def _check(options: Options) -> None:
    """Refuse invalid values and combinations, and write the shard in its plain form."""
    from ludus.data.shards import Shard
    from ludus.errors import UserError

    _check_numbers(options.values())
    engine, stop, files = options.engine, options.stop, options.files
    if stop.enough is not None and stop.enough > options.play.repeats:
        raise UserError(f"--enough {stop.enough} is more than --repeats {options.play.repeats}", "Raise --repeats")
    if stop.group_deadline is not None and not 0 < stop.group_deadline < float("inf"):
        raise UserError(f"group_deadline must be a positive number of seconds, not {stop.group_deadline!r:.60}")
    if options.rows.shard is not None:
        options.rows = replace(options.rows, shard=str(Shard.parse(options.rows.shard)))
    if engine.ray_env is not None and engine.ray is None:
        raise UserError("--ray-env is for the nodes of a Ray cluster", "Add --ray ADDRESS, or leave it out")
    if files.resume and files.output is None:
        raise UserError("--resume needs the folder of the collection to resume", "Add --output DIR")
    if files.resume and files.overwrite:
        raise UserError("--resume continues a collection and --overwrite deletes it", "Leave one of them out")


def _check_numbers(values: Mapping[str, Any]) -> None:
    """Refuse what is not a whole number, or too small, where an option has a least value."""
    from ludus.errors import UserError

    for _, spec, text in Options.all():
        name, value = spec.name, values[spec.name]
        takes_auto = name == "concurrency"
        if text.least is None or (takes_auto and value == "auto") or (value is None and spec.default is None):
            continue
        if not isinstance(value, int) or isinstance(value, bool):
            other = ' or "auto"' if takes_auto else ""
            raise UserError(f"{name} must be a whole number{other}, not {value!r:.60}")
        if value < text.least:
            raise UserError(f"{name} must be at least {text.least}, not {value}")
