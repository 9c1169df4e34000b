"""`ludus data upload`: a file or a folder of rows to the Hugging Face hub."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from ludus.cli.commands import Argument, Option


def upload(
    path: Annotated[Path, Argument(metavar="PATH", help="A file, or a folder such as ludus data prepare makes.")],
    repo: Annotated[str, Argument(metavar="OWNER/NAME", help="The dataset on the hub; made if it is new.")],
    private: Annotated[bool, Option("--private", help="Make a new dataset private.")] = False,
    message: Annotated[str, Option("--message", "-m", help="The commit's message.")] = "",
    revision: Annotated[str | None, Option(help="The branch to commit to; default: main.")] = None,
    pr: Annotated[bool, Option("--pr", help="Open a pull request instead of a commit.")] = False,
    json_: Annotated[bool, Option("--json", help="Print the commit as JSON and nothing else.")] = False,
) -> None:
    """Upload rows to the Hugging Face hub, as one commit.

    A folder with a manifest.json and without a README.md gets a dataset card made from the manifest. You need a token
    that may write: set HF_TOKEN. HF_ENDPOINT names the hub.

    Example: ludus data upload data/prepared me/my-tasks --private
    """
    from ludus.cli.progress import Display
    from ludus.cli.screen import one_line, prints_to_stderr, safe_json
    from ludus_data.transfer import upload as upload_dataset

    with prints_to_stderr(json_):
        done = upload_dataset(path, repo, private=private, message=message, revision=revision, pr=pr)
    if json_:
        print(safe_json(done))
        return
    where = done["pull_request"] or f"commit {done['revision']}"
    Display().say(one_line(f"{len(done['files'])} files are in {done['dataset']}, {where}"))
