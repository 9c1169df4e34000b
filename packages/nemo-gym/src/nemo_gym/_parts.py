"""The parts of a message's content: typed dictionaries for input, models for the text of the model."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

from nemo_gym._received import ReadableValue

_DROP_UNKNOWN = ConfigDict(extra="ignore")  # a typed dictionary without a configuration takes that of its owner


class NeMoGymResponseInputText(TypedDict):
    """A text."""

    __pydantic_config__ = _DROP_UNKNOWN  # type: ignore[misc]

    text: str
    type: Literal["input_text"]


class NeMoGymResponseInputImage(TypedDict):
    """An image: a URL, data in a URL, or an uploaded file."""

    __pydantic_config__ = _DROP_UNKNOWN  # type: ignore[misc]

    type: Literal["input_image"]
    detail: NotRequired[str | None]
    file_id: NotRequired[str | None]
    image_url: NotRequired[str | None]


class NeMoGymResponseInputFile(TypedDict):
    """A file: a URL, its data, or an uploaded file."""

    __pydantic_config__ = _DROP_UNKNOWN  # type: ignore[misc]

    type: Literal["input_file"]
    detail: NotRequired[str | None]
    file_data: NotRequired[str | None]
    file_id: NotRequired[str | None]
    file_url: NotRequired[str | None]
    filename: NotRequired[str | None]


class NeMoGymInputAudio(TypedDict):
    """Audio data with their format."""

    __pydantic_config__ = _DROP_UNKNOWN  # type: ignore[misc]

    data: str
    format: str


class NeMoGymResponseInputAudio(TypedDict):
    """An audio recording."""

    __pydantic_config__ = _DROP_UNKNOWN  # type: ignore[misc]

    type: Literal["input_audio"]
    input_audio: NeMoGymInputAudio


class NeMoGymVideoURL(TypedDict):
    """A video's URL as an object."""

    __pydantic_config__ = _DROP_UNKNOWN  # type: ignore[misc]

    url: Annotated[str, Field(min_length=1)]


VideoSource = Annotated[str, Field(min_length=1)] | NeMoGymVideoURL


class NeMoGymResponseInputVideo(TypedDict):
    """A video: exactly one of `video_url` and `video`."""

    __pydantic_config__ = _DROP_UNKNOWN  # type: ignore[misc]

    type: Literal["input_video"]
    video_url: NotRequired[VideoSource]
    video: NotRequired[VideoSource]


InputPart = (
    NeMoGymResponseInputText
    | NeMoGymResponseInputImage
    | NeMoGymResponseInputFile
    | NeMoGymResponseInputAudio
    | NeMoGymResponseInputVideo
)


def _check_video(part: InputPart) -> InputPart:
    if part["type"] == "input_video" and ("video_url" in part) == ("video" in part):
        raise ValueError("input_video needs exactly one of `video_url` and `video`")
    return part


#: A part of an input message. Its `type` decides which one.
NeMoGymContentPart = Annotated[InputPart, Field(discriminator="type"), AfterValidator(_check_video)]


class NeMoGymResponseOutputText(BaseModel):
    """A text of the model."""

    annotations: list[ReadableValue]
    text: str
    type: Literal["output_text"] = "output_text"
    logprobs: list[ReadableValue] | None = None


class NeMoGymResponseOutputRefusal(BaseModel):
    """A refusal of the model."""

    refusal: str
    type: Literal["refusal"] = "refusal"


class NeMoGymSummary(BaseModel):
    """A part of a reasoning item's summary."""

    text: str
    type: Literal["summary_text"]
