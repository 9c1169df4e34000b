"""A row: a written policy, tools defined by schemas alone, and a customer."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

import ludus
from ludus.response import texts_of


class ToolDefinition(BaseModel):
    """A tool with JSON schemas of its arguments and result. Older rows use `doc` and `params`."""

    model_config = ConfigDict(extra="allow")

    name: str
    doc: str = ""
    description: str = ""
    params: dict[str, Any] = {}
    parameters: dict[str, Any] = {}
    returns: dict[str, Any] | None = None
    strict: bool | None = None

    @property
    def arguments(self) -> dict[str, Any]:
        """The schema of the tool's arguments."""
        return self.parameters or self.params

    def offered_as(self, tool: dict[str, Any]) -> bool:
        """Whether `tool`, as offered to the model, is this definition."""
        mine = (self.name, self.description or self.doc, self.arguments)
        return mine == (tool.get("name"), tool.get("description"), tool.get("parameters"))


class CustomerScenario(BaseModel):
    """Who the customer is and what they want."""

    model_config = ConfigDict(extra="allow")

    customer_persona: str = ""
    reason_for_contact: str = ""
    customer_details: str = ""
    unknown_info: str | None = None
    task_instructions: str = ""
    representative_domain: str = ""

    #: Whether the policy requires that this customer is transferred.
    outside_policy_scope: bool = False


class ConversationTask(ludus.Task):
    """One conversation. The prompt must hold the policy, and the offered tools must equal the defined tools."""

    policy: str
    definitions: list[ToolDefinition] = Field(alias="tools")
    customer_scenario: CustomerScenario
    id: str = ""
    domain_name: str = ""
    profile: Literal["general", "proactive"] | None = None
    initial_user_message: str | None = None

    @model_validator(mode="after")
    def _prompt_and_tools_match(self) -> Self:
        prompt = "\n".join(texts_of(item) for item in self.input if item.get("role") in ("system", "developer"))
        if f"<policy>\n{self.policy}\n</policy>" not in prompt:
            raise ValueError("the system message must hold the row's policy between <policy> and </policy>")
        offered = self.tools or []
        if len(offered) != len(self.definitions) or not all(
            mine.offered_as(tool) for mine, tool in zip(self.definitions, offered, strict=True)
        ):
            raise ValueError("responses_create_params.tools must equal the row's tools")
        return self
