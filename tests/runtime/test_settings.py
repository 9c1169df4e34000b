"""Settings with dots in their names set one field of a nested model, and are checked like the others."""

from __future__ import annotations

import pytest
from pydantic import BaseModel, ConfigDict

import ludus
from ludus import Environment, Resources, UserError
from ludus.models import open_model
from ludus.models.openai import OpenAIModel
from ludus.runtime.settings import checked

URL = "http://127.0.0.1:9/v1#m"


class Lamp(BaseModel):
    model_config = ConfigDict(extra="forbid")
    bright: int = 3
    colour: str = "red"


class Room(Resources):
    class Config(ludus.ResourcesConfig):
        lamp: Lamp = Lamp()
        spare: Lamp | None = None

    class Needs(ludus.ResourcesConfig):
        lamp: Lamp

    async def verify(self, task, response):
        return 1.0


def test_one_field_of_a_nested_setting_is_set_and_the_others_keep_their_values():
    model = open_model(URL, {"retries.server": 1})
    assert isinstance(model, OpenAIModel)
    assert (model.config.retries.server, model.config.retries.busy) == (1, 10)


def test_a_nested_setting_adds_to_the_block_of_a_model_file():
    model = open_model(
        {"type": "openai", "model": "m", "base_url": URL[:-2], "retries": {"busy": 2}}, {"retries.server": 1}
    )
    assert isinstance(model, OpenAIModel)
    assert (model.config.retries.server, model.config.retries.busy) == (1, 2)


def test_a_nested_setting_of_resources_keeps_what_was_set_before():
    environment = Environment.load(Room)
    environment.configure({"resources.lamp.bright": 7})
    environment.configure({"resources.lamp.colour": "blue", "resources.spare.bright": 1})
    assert environment.config.lamp == Lamp(bright=7, colour="blue")
    assert environment.config.spare == Lamp(bright=1)


def test_a_nested_setting_gives_a_required_model():
    assert checked(Room.Needs, {"lamp.bright": 2}, "resources").lamp == Lamp(bright=2)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"retries.servr": 1}, "model.retries has no setting servr. Did you mean server?"),
        ({"retries.server": -1}, "model.retries.server must be at least 0, not -1"),
        ({"retris.server": 1}, "model has no setting retris.server. Did you mean retries.server?"),
        ({"temperature.low": 1}, "model has no setting temperature.low"),
        ({"retries": 3, "retries.server": 1}, "model.retries and model.retries.server are both set"),
    ],
)
def test_a_nested_setting_is_checked(settings, says):
    with pytest.raises(UserError) as caught:
        open_model(URL, settings)
    assert says in str(caught.value)
