"""The settings of the environment. Keys are none of them: see `providers.py` for the names they are looked up by."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt

from ludus.errors import UserError
from ludus.graders.judge import JudgeConfig
from ludus.models.retry import Retries


class JsonApi(BaseModel):
    """How a search service is asked and read that answers a GET with JSON."""

    model_config = ConfigDict(extra="forbid")

    #: The parameter that holds the query, and what else is sent.
    query: str = "q"
    parameters: dict[str, str] = {}

    #: The header that holds the key, where there is one.
    key_header: str = "Authorization"

    #: Where the list of results is, with dots between steps, and what its entries call the parts of a result.
    results: str = "results"
    title: str = "title"
    url: str = "url"
    snippet: str = "content"


class SearchConfig(JudgeConfig):
    """Settings of the tools and of the verifier."""

    #: Who searches: the embedded index, Google Custom Search, any service that speaks JSON, or Tavily.
    provider: Literal["local", "google", "json", "tavily"] = "local"

    #: The documents that `local` searches, a folder or a file, and a folder where their index is kept between runs.
    corpus: Path | None = None
    index_folder: Path | None = None

    #: The address of the service: needed for `json`, and for the others only where it is not the usual one.
    endpoint: Annotated[str, Field(pattern=r"^https?://[^/\s]")] | None = None
    json_api: JsonApi = JsonApi()
    results: Annotated[int, Field(ge=1, le=10)] = 10
    search_timeout_seconds: PositiveFloat = 10.0
    search_retries: Retries = Retries(busy=5, server=2, dropped=2, fresh=2, longest_pause=10.0)

    #: Limits of one page: time to fetch it, bytes that are read of it, words that the model sees.
    page_timeout_seconds: PositiveFloat = 20.0
    page_bytes: PositiveInt = 4 << 20
    page_words: PositiveInt = 10_000

    #: Let the model browse this machine and the network around it, on any port.
    allow_private_addresses: bool = False

    #: Domains that are neither found nor opened, as a list and as a file.
    excluded_domains: list[str] = []
    exclude_domains_file_path: Path | None = None

    #: Whether a judge decides about open questions; else the answer must be the expected text.
    use_judge: bool = True

    def excluded(self) -> frozenset[str]:
        """All domains that are excluded."""
        named = {domain.lower().strip(".") for domain in self.excluded_domains}
        return frozenset(
            named | (_domains(self.exclude_domains_file_path) if self.exclude_domains_file_path else set())
        )


def _domains(path: Path) -> set[str]:
    """The domains in a file of notices: `{"notices": [{"properties": [{"type": "domain", "value": ...}]}]}`."""
    try:
        notices = orjson.loads(path.read_bytes())["notices"]
        properties = [each for notice in notices for each in notice["properties"]]
        return {str(each["value"]).lower().strip(".") for each in properties if each["type"] == "domain"}
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} holds no notices with properties of type domain") from error
