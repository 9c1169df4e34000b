"""`ludus data convert`: rows in anybody's layout become tasks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ludus.cli.commands import Argument, Option
from ludus.runtime.option_limits import MAX_INT64

if TYPE_CHECKING:
    from ludus_data.mapping import RowMapping


def convert(
    source: Annotated[
        str, Argument(metavar="SOURCE", help="A file, - for standard input, or hf:OWNER/NAME[@REVISION][:SPLIT].")
    ],
    output: Annotated[str, Option("--output", "-o", metavar="FILE", help="The file for the tasks; - for stdout.")],
    layout: Annotated[str | None, Option(help="The layout of the rows; default: detected.")] = None,
    map_: Annotated[
        list[str] | None, Option("--map", metavar="FIELD=TARGET", help="Where a field goes; may repeat.")
    ] = None,
    mapping: Annotated[Path | None, Option(metavar="FILE", help="A mapping as YAML.")] = None,
    prompt: Annotated[
        str | None, Option(metavar="FILE|TEXT", help="A template with {field} that makes the prompt.")
    ] = None,
    text: Annotated[list[str] | None, Option(metavar="FIELD", help="Write this field as text; may repeat.")] = None,
    parse: Annotated[
        list[str] | None, Option(metavar="FIELD", help="Read this field, a text, as JSON; may repeat.")
    ] = None,
    drop: Annotated[list[str] | None, Option(metavar="FIELD", help="Leave this field out; may repeat.")] = None,
    limit: Annotated[int | None, Option(min=1, max=MAX_INT64, help="Use only the first N rows.")] = None,
    overwrite: Annotated[bool, Option("--overwrite", help="Replace an existing output.")] = False,
    json_: Annotated[bool, Option("--json", help="Print what was done as JSON and nothing else.")] = False,
) -> None:
    """Convert rows of other tools to tasks, one JSON line each.

    Known layouts are detected: chat messages, ShareGPT, question and answer, GSM8K, MATH, MMLU, ARC, verl, TRL,
    verifiers, Inspect, Alpaca and more. For any other file say what is what: the target prompt is what the model is
    asked, and other targets are fields of the task. --map replaces the detection; all other flags add to the layout.

    Example: ludus data convert train.csv --map question=prompt --map answer=expected_answer --output tasks.jsonl

    From the hub, with the layout detected: ludus data convert hf:openai/gsm8k:main/test --output gsm8k.jsonl

    In a pipe: ludus data convert train.csv --output - | head -n 3

    Exit code: 0 all rows are converted, 2 a mistake in a row or in the command; then no file is written.
    """
    from ludus.cli.progress import Display
    from ludus.cli.screen import one_line, safe_json
    from ludus.errors import UserError
    from ludus_data.convert import STDOUT
    from ludus_data.convert import convert as convert_rows
    from ludus_data.layouts import find_layout

    if json_ and output == STDOUT:
        raise UserError("--json and --output - both print to stdout", "Name a file with --output")
    display = Display(quiet=json_)
    try:
        done = convert_rows(
            source,
            output,
            _mapping(mapping, map_ or [], prompt, {"text": text or [], "parse": parse or [], "drop": drop or []}),
            layout=find_layout(layout) if layout is not None else None,
            limit=limit,
            overwrite=overwrite,
            say=lambda line: None if json_ else display.say(one_line(line)),
            tick=display.reading,
        )
    finally:
        display.close()
    if json_:
        print(safe_json(done.as_json()))
        return
    for field, rows in done.left_out.items():
        display.say(one_line(f"left out of {_counted(rows, 'row')}, because a task has no field for it: {field}"))
    if done.repeated:
        display.say(f"{_counted(done.repeated, 'row')} repeated an earlier task")
    place = "standard output" if output == STDOUT else done.output
    display.say(f"wrote {_counted(done.rows, 'task')} to {place}")


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _mapping(file: Path | None, pairs: list[str], prompt: str | None, lists: dict[str, list[str]]) -> RowMapping:
    """The mapping of a file with the additions of the flags."""
    from ludus.errors import UserError
    from ludus.prompt import load_prompt
    from ludus_data.convert import load_mapping
    from ludus_data.mapping import RowMapping

    row_mapping = load_mapping(file) if file is not None else RowMapping()
    named: set[str] = set()
    for pair in pairs:
        field, equals, target = pair.partition("=")
        if not equals or not field.strip() or not target.strip():
            raise UserError(f"--map {pair:.60} must look like FIELD=TARGET", "Example: --map question=prompt")
        if field.strip() in named:
            raise UserError(f"--map names {field.strip():.60} twice", "A field has one target")
        named.add(field.strip())
        row_mapping.map[field.strip()] = target.strip()
    for name, fields in lists.items():
        getattr(row_mapping, name).extend(fields)
    if prompt is not None:
        row_mapping.prompt = load_prompt(prompt)
    return row_mapping
