"""`ludus data download`: a dataset of the Hugging Face hub to a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from ludus.cli.commands import Argument, Option


def download(
    source: Annotated[str, Argument(metavar="hf:OWNER/NAME[@REVISION][:SPLIT]", help="A dataset on the hub.")],
    output: Annotated[Path, Option("--output", "-o", help="The folder for its files and the manifest.")],
    overwrite: Annotated[bool, Option("--overwrite", help="Replace an earlier download.")] = False,
    json_: Annotated[bool, Option("--json", help="Print the manifest as JSON and nothing else.")] = False,
) -> None:
    """Download a dataset, or one split, from the Hugging Face hub.

    manifest.json, written last, names the commit and the digest of every file. After a failure run the command again:
    files that have arrived are kept. HF_ENDPOINT names the hub, and HF_TOKEN lets you read private datasets.

    Example: ludus data download hf:openai/gsm8k:main/test --output data/gsm8k
    """
    from ludus.cli.progress import Display
    from ludus.cli.screen import one_line, prints_to_stderr, safe_json
    from ludus_data.transfer import download as download_dataset

    display = Display(quiet=json_)
    with prints_to_stderr(json_):
        manifest = download_dataset(
            source, output, overwrite=overwrite, say=lambda line: None if json_ else display.say(one_line(line))
        )
    if json_:
        print(safe_json(manifest))
        return
    size, commit = sum(file["bytes"] for file in manifest["files"]), manifest["sources"][0]["revision"]
    display.say(f"{len(manifest['files'])} files, {size:,} bytes, of commit {commit} are in {output}")
