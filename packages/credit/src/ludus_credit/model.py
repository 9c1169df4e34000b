"""The policy that continues: the given model, or the one that collected the run, opened again from `run.json`."""

from __future__ import annotations

import json
from typing import Any

from ludus.errors import UserError
from ludus.model import Model
from ludus.models import open_model
from ludus.runtime.redaction import HIDDEN
from ludus.store.files import Files
from ludus.store.run import differences

_HINT = "Name the policy that continues: --model SPEC"


def recorded_model(files: Files) -> Model:
    """The model that `run.json` records. It must have the recorded name and settings, or it is another policy."""
    path, described = files.run, files.described()
    if not path.exists():
        raise UserError(f"there is no {path}: it says which model collected the run", _HINT)
    try:
        recorded: dict[str, Any] = described["identity"]["model"]
        options: dict[str, Any] = described["options"]
        spec, settings = options.get("model", recorded["name"]), options.get("model_settings")
    except (KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path} does not say which model collected the run", _HINT) from error
    if "model" not in options and HIDDEN in json.dumps(recorded):
        raise UserError(f"the model of the run has a key, which {path} does not hold", _HINT)
    try:
        model = open_model(str(spec), settings if isinstance(settings, dict) else None)
    except UserError as error:
        raise UserError(f"cannot open the model of the run: {error}", _HINT) from error
    if differing := differences(recorded, {"name": model.name, "settings": model.settings()}):
        key, old, new = differing[0]
        raise UserError(f"the model of the run is another one now: {key} was {old!r:.60}, now {new!r:.60}", _HINT)
    return model
