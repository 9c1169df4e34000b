"""The commands that check, render, download and upload datasets."""

from __future__ import annotations

from pathlib import Path

from ludus.errors import UserError
from ludus_nemo_gym.config import read_config
from ludus_nemo_gym.entry_points import Arguments, entry_point, options, required_text


@entry_point
def ng_prepare_data(arguments: Arguments) -> int:
    """Check the datasets of agents, compute their metrics, and collate them.

    Example: ng_prepare_data "+config_paths=[resources_servers/mcqa/configs/mcqa.yaml]" \\
    +output_dirpath=data/mcqa +mode=example_validation

    +mode=train_preparation|example_validation  the kinds of datasets to use
    +output_dirpath=DIR                         the folder for {train,validation,example}.jsonl
    +should_download=true                       download missing files (needs huggingface_hub)
    +overwrite_metrics_conflicts=true           replace metrics files that differ
    """
    from ludus_nemo_gym.preparing import prepare_data

    config = read_config(arguments, check=False)
    tree = config.tree
    if config.problems:
        raise UserError("; ".join(config.problems))
    mode, output = (required_text(tree, key) for key in ("mode", "output_dirpath"))
    download, overwrite = (bool(tree.get(key)) for key in ("should_download", "overwrite_metrics_conflicts"))
    for path, rows in prepare_data(config, mode, Path(output), download=download, overwrite=overwrite):
        print(f"{path}: {rows} rows")
    return 0


@entry_point
def ng_materialize_prompts(arguments: Arguments) -> int:
    """Build the prompts of rows from a template.

    Example: ng_materialize_prompts +input_jsonl_fpath=rows.jsonl +prompt_config=prompt.yaml \\
    +output_jsonl_fpath=with_prompts.jsonl

    The template is a YAML file with `user` and, if you like, `system`; {field} is a field of the row. Rows that have a
    prompt keep it.
    """
    from ludus_nemo_gym.prompts import render_file
    from ludus_nemo_gym.search_paths import find_data

    tree = options(arguments, {"input_jsonl_fpath", "prompt_config", "output_jsonl_fpath"})
    source, prompt, target = (
        required_text(tree, key) for key in ("input_jsonl_fpath", "prompt_config", "output_jsonl_fpath")
    )
    rendered, unchanged = render_file(find_data(source) or Path(source), prompt, Path(target))
    print(f"{target}: {rendered + unchanged} rows, {unchanged} of them had a prompt already")
    return 0


@entry_point
def ng_download_dataset_from_hf(arguments: Arguments) -> int:
    """Download a file of a dataset from Hugging Face (needs huggingface_hub).

    Example: ng_download_dataset_from_hf +repo_id=ORG/NAME +artifact_fpath=train.jsonl +output_fpath=data/train.jsonl

    +split=NAME          downloads NAME.jsonl; in place of +artifact_fpath
    +output_dirpath=DIR  the folder for the file; in place of +output_fpath
    """
    from ludus_nemo_gym.hub import download

    tree = options(arguments, {"repo_id", "artifact_fpath", "output_fpath", "output_dirpath", "split"})
    artifact = tree.get("artifact_fpath") or (f"{tree['split']}.jsonl" if tree.get("split") else None)
    if artifact is None:
        raise UserError("artifact_fpath is missing", "Add +artifact_fpath=FILE or +split=NAME")
    folder = tree.get("output_dirpath")
    target = Path(str(folder), Path(str(artifact)).name) if folder else Path(required_text(tree, "output_fpath"))
    download(required_text(tree, "repo_id"), str(artifact), target, tree.get("hf_token"))
    print(target)
    return 0


@entry_point
def ng_upload_dataset_to_hf(arguments: Arguments) -> int:
    """Upload a file to a dataset on Hugging Face (needs huggingface_hub, and hf_token in env.yaml).

    Example: ng_upload_dataset_to_hf +input_jsonl_fpath=train.jsonl +repo_id=ORG/NAME +split=train

    +artifact_fpath=FILE  the file's name there (default: SPLIT.jsonl, or the name of the input)
    +create_pr=true       open a pull request instead of a commit
    """
    from ludus_nemo_gym.hub import upload

    tree = options(arguments, {"input_jsonl_fpath", "repo_id", "artifact_fpath", "split", "create_pr"})
    source = Path(required_text(tree, "input_jsonl_fpath"))
    named = f"{tree['split']}.jsonl" if tree.get("split") else source.name
    artifact = str(tree.get("artifact_fpath") or named)
    repository = required_text(tree, "repo_id")
    print(upload(source, repository, artifact, tree.get("hf_token"), create_pr=bool(tree.get("create_pr"))))
    return 0
