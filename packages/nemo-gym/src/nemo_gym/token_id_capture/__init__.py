"""Which captured model call continues which: the names of NeMo Gym that model servers import."""

from __future__ import annotations

from nemo_gym.token_id_capture.lineage import LineageResolver, ParentResolution, ParentResolutionStatus
from nemo_gym.token_id_capture.stores import FileLineageStore, InMemoryLineageStore, LineageStore

__all__ = [
    "FileLineageStore",
    "InMemoryLineageStore",
    "LineageResolver",
    "LineageStore",
    "ParentResolution",
    "ParentResolutionStatus",
]
