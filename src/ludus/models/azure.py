"""Models deployed on Azure OpenAI: the APIs of OpenAI with other URLs and another header for the key."""

from __future__ import annotations

from ludus.errors import UserError
from ludus.models.openai import OpenAIModel
from ludus.models.transport import HttpOptions, Transport
from ludus.runtime.keys import header_value, look_up_key, redacted


class AzureModel(OpenAIModel):
    """`azure:DEPLOYMENT`. The URL of the Azure resource is `base_url` or AZURE_OPENAI_ENDPOINT.

    The key is in AZURE_OPENAI_API_KEY. Without a key, the Entra token in AZURE_OPENAI_AD_TOKEN is used.
    """

    class Config(OpenAIModel.Config):
        """Settings of a deployment; `model` is the deployment's name."""

        api_key_env: str = "AZURE_OPENAI_API_KEY"
        #: the environment variable that holds an Entra token, used without a key
        token_env: str = "AZURE_OPENAI_AD_TOKEN"
        #: the version of the API in every URL
        api_version: str = "2025-04-01-preview"

    config: Config

    def __init__(self, config: Config) -> None:
        self._token = header_value(look_up_key(config.token_env), f"the token in {config.token_env}")
        super().__init__(config)
        if not self._key and not self._token:
            raise UserError(
                f"model azure:{config.model} needs a key", f"Set {config.api_key_env} or {config.token_env}"
            )
        self.name = f"azure:{config.model}"
        self._transport = _AzureTransport(
            self.name, self._urls(), self._transport.headers, config, self._http_options()
        )

    def _urls(self) -> list[str]:
        urls = self.config.base_url or look_up_key("AZURE_OPENAI_ENDPOINT")
        if not urls:
            raise UserError(f"model azure:{self.config.model} has no endpoint URL", "Set AZURE_OPENAI_ENDPOINT")
        return [url.rstrip("/").removesuffix("/openai") for url in ([urls] if isinstance(urls, str) else urls)]

    def _authorisation(self) -> dict[str, str]:
        return {"api-key": self._key} if self._key else {"Authorization": f"Bearer {self._token}"}

    def _key_hint(self) -> str:
        return super()._key_hint() if self._key else f"the token in {self.config.token_env}"

    def _version_hint(self) -> str:
        return ""  # the URLs of Azure have no version in their path

    def _clean(self, text: str) -> str:
        return redacted(super()._clean(text), self._token)


class _AzureTransport(Transport):
    """Puts the deployment and the API version into the URL."""

    def __init__(
        self, name: str, urls: list[str], headers: dict[str, str], config: AzureModel.Config, options: HttpOptions
    ) -> None:
        super().__init__(name, urls, headers, config.retries, options)
        self._config = config

    def address(self, base: str, path: str) -> str:
        base, _, query = base.partition("?")
        base = base.rstrip("/")
        version = f"?api-version={self._config.api_version}{query and f'&{query}'}"
        if path == "/responses":
            return f"{base}/openai/responses{version}"
        return f"{base}/openai/deployments/{self._config.model}{path}{version}"
