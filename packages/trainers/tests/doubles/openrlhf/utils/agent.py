"""A double of OpenRLHF 0.11's agent base, written from its documented call: no wheel can be installed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any


class AgentExecutorBase(ABC):
    """OpenRLHF calls `execute` once for each prompt, and trains on the dictionary that it returns."""

    @abstractmethod
    async def execute(
        self,
        prompt: Any,
        label: Any,
        sampling_params: Any,
        max_length: int,
        hf_tokenizer: Any,
        llm_engine: Any,
        images: Any = None,
    ) -> dict[str, Any]:
        """Run one episode."""
