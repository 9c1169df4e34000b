"""A run that asks for telemetry finds the package that has it, or says how to install it before anything is spent."""

from __future__ import annotations

from typing import Any

import pytest

import ludus
from ludus import ScriptedModel, UserError


@pytest.fixture
def without_telemetry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ludus.collection.observers._GROUP", "ludus.a_group_without_entries")
    monkeypatch.setattr("ludus.errors.DISTRIBUTION", "a copy that pip did not install")


@pytest.mark.usefixtures("without_telemetry")
@pytest.mark.parametrize("options", [{"otel": True}, {"metrics_port": 0}, {"log_to": ["tensorboard"]}])
def test_telemetry_without_its_package_is_refused_before_the_first_model_call(options: dict[str, Any]):
    model = ScriptedModel(["\\boxed{A}"] * 5)
    with pytest.raises(UserError) as caught:
        ludus.collect("mcqa", model=model, **options)
    assert str(caught.value) == (
        "what --otel, --metrics-port and --log-to need is in another package. "
        "Install it with: pip install ludus-telemetry"
    )


@pytest.mark.usefixtures("without_telemetry")
def test_a_run_without_telemetry_needs_no_package():
    assert len(ludus.collect("mcqa", model=ScriptedModel(["\\boxed{A}"] * 5), limit=1, log_to=[]).rollouts) == 1
