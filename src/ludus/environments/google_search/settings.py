"""The settings of the environment. Keys are not settings: `services.py` lists their environment variables."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt

from ludus.errors import UserError, cannot_read
from ludus.graders.judge import JudgeConfig
from ludus.http.retries import Retries


class JsonApi(BaseModel):
    """How to query a search service that answers a GET with JSON, and how to read its answer."""

    model_config = ConfigDict(extra="forbid")

    #: The parameter that holds the query, and further parameters.
    query: str = "q"
    parameters: dict[str, str] = {}

    #: The header that holds the key, if there is one.
    key_header: str = "Authorization"

    #: The path of the list of results, with dots, and the field names of its entries.
    results: str = "results"
    title: str = "title"
    url: str = "url"
    snippet: str = "content"


class SearchConfig(JudgeConfig):
    """Settings of the tools and of the verifier."""

    #: The search service: the local index, Google Custom Search, any JSON service, or Tavily.
    provider: Literal["local", "google", "json", "tavily"] = "local"

    #: The folder or file that `local` searches, and a folder that keeps its index between runs.
    corpus: Path | None = None
    index_folder: Path | None = None

    #: The URL of the service. Required for `json`; the other services have a default.
    endpoint: Annotated[str, Field(pattern=r"^https?://[^/\s]")] | None = None
    json_api: JsonApi = JsonApi()
    results: Annotated[int, Field(ge=1, le=10)] = 10
    search_timeout_seconds: PositiveFloat = 10.0
    search_retries: Retries = Retries(busy=5, server=2, dropped=2, fresh=2, longest_pause=10.0)

    #: Limits of one page: seconds to fetch it, bytes that are read, words that the model sees.
    page_timeout_seconds: PositiveFloat = 20.0
    page_bytes: PositiveInt = 4 << 20
    page_words: PositiveInt = 10_000

    #: Let the model browse this machine and its local network, on any port.
    allow_private_addresses: bool = False

    #: Domains that are left out of results and never opened, as a list and as a file.
    excluded_domains: list[str] = []
    exclude_domains_file_path: Path | None = None

    #: Whether a judge decides open questions; if false, the answer must equal the expected text.
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
        properties = [entry for notice in notices for entry in notice["properties"]]
        return {str(entry["value"]).lower().strip(".") for entry in properties if entry["type"] == "domain"}
    except OSError as error:
        raise cannot_read(path, error) from error
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} must hold notices with properties of type domain") from error
