"""`ludus data prepare`: collate the datasets of several environments for a trainer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from ludus.cli.commands import Exit, Option
from ludus.runtime.option_limits import MAX_COUNT, MAX_INT64
from ludus_data.commands.progress import FOUND, print_columns, reading

if TYPE_CHECKING:
    from collections.abc import Iterator


def prepare(
    output: Annotated[Path, Option("--output", "-o", metavar="FOLDER", help="The folder for the files.")],
    env: Annotated[
        list[str] | None,
        Option("--env", "-e", metavar="ENV", help="Use its datasets train, validation and example."),
    ] = None,
    train: Annotated[
        list[str] | None, Option(metavar="ENV=FILE", help="A file for train in place of the environment's own.")
    ] = None,
    validation: Annotated[list[str] | None, Option(metavar="ENV=FILE", help="The same for validation.")] = None,
    example: Annotated[list[str] | None, Option(metavar="ENV=FILE", help="The same for example.")] = None,
    mix: Annotated[str | None, Option(metavar="ENV=WEIGHT,...", help="The share of each environment in train.")] = None,
    repeats: Annotated[
        str | None, Option(metavar="N or ENV=N,...", help="How often each row of train is written.")
    ] = None,
    license_: Annotated[
        list[str] | None, Option("--license", metavar="ENV=TEXT", help="The licence of an environment's files.")
    ] = None,
    seed: Annotated[int, Option(min=-MAX_INT64, max=MAX_INT64, help="Seed of the shuffle and of --mix.")] = 0,
    shuffle: Annotated[bool, Option(help="Shuffle train. The other files keep their order.")] = True,
    overwrite: Annotated[bool, Option("--overwrite", help="Replace existing files.")] = False,
    json_: Annotated[bool, Option("--json", help="Print the manifest as JSON and nothing else.")] = False,
) -> None:
    """Collate datasets into files for training.

    The files are train.jsonl, validation.jsonl, example.jsonl and manifest.json.

    Each row gets the agent_ref of its environment. Every row is checked first. With --mix no row is used more often
    than --repeats says: the scarcest environment bounds the size. The shuffle needs 64 MB of memory, and disk space for
    the rows in TMPDIR.

    Exit code: 0 done, 1 done but the data has conflicts, 2 a mistake in the command or bad rows.

    Example: ludus data prepare --train math_with_judge=math.jsonl --train mcqa=mcqa.jsonl
    --mix math_with_judge=0.6,mcqa=0.4 --output data/mixed
    """
    from ludus.cli.screen import prints_to_stderr, safe_json
    from ludus.data.mixing import parse_mix
    from ludus_data.environment_sources import environment_sources
    from ludus_data.prepare import prepare as prepare_files

    files = [
        (split, name, file)
        for split, assignments in (("train", train), ("validation", validation), ("example", example))
        for name, file in _assignments(f"--{split}", assignments or [])
    ]
    licences = dict(_assignments("--license", license_ or []))
    weights = parse_mix(mix) if mix is not None else None
    with reading("preparing", quiet=json_) as tick, prints_to_stderr(json_):
        sources = environment_sources(env or [], files, _repeats(repeats), licences)
        order = seed if shuffle else None
        manifest = prepare_files(sources, output, mix=weights, seed=order, overwrite=overwrite, tick=tick)
    if json_:
        print(safe_json(manifest))
    else:
        _show(manifest, output)
    raise Exit(FOUND if manifest["conflicts"] else 0)


def _assignments(option: str, assignments: list[str]) -> Iterator[tuple[str, str]]:
    from ludus.errors import UserError

    for assignment in assignments:
        name, _, value = assignment.partition("=")
        if not name or not value:
            raise UserError(f"{option} {assignment:.80} is not ENV=VALUE", f"Example: {option} mcqa=...")
        yield name, value


def _repeats(text: str | None) -> int | dict[str, int]:
    from ludus.data.mixing import parse_numbers
    from ludus.errors import UserError

    if text is None:
        return 1
    hint = "Example: --repeats 2, or --repeats mcqa=2"
    numbers = parse_numbers("--repeats", text if "=" in text else f"N={text}", hint)
    for name, number in numbers.items():
        if number != int(number) or number > MAX_COUNT:
            raise UserError(f"--repeats {name}={number:g} is not a whole number from 1 to {MAX_COUNT:,}", hint)
    whole = {name: int(number) for name, number in numbers.items()}
    return whole if "=" in text else whole["N"]


def _show(manifest: dict[str, Any], output: Path) -> None:
    from ludus.cli.screen import emit, one_line, stdout_console, text

    console = stdout_console()
    for conflict in manifest["conflicts"]:
        rows = f" ({conflict['rows']:,} rows, the first is {conflict['where']})" if conflict["rows"] else ""
        emit(console, text(f"conflict: {one_line(conflict['message'])}{rows}", "yellow"))
    columns = ["split", "environment", "file", "licence", "rows", "repeats", "used"]
    lines = [
        [f"{source[name]:,}" if isinstance(source[name], int) else source[name] for name in columns]
        for source in manifest["sources"]
    ]
    print_columns("sources", columns, lines)
    written = [[str(output / file["file"]), f"{file['rows']:,}", file["sha256"][:16]] for file in manifest["files"]]
    print_columns("files", ["file", "rows", "sha256"], written)
