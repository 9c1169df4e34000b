"""Resources whose verdict takes `burn_ms` of processor time."""

from time import thread_time

import ludus
from ludus import Resources, Response


class Burner(Resources):
    """Judges every answer with 1, after the processor time that the row asks for."""

    class Task(ludus.Task):
        """How many milliseconds a verdict takes."""

        burn_ms: float = 0.0

    async def verify(self, task: Task, response: Response) -> float:
        """Use up the processor time."""
        end = thread_time() + task.burn_ms / 1000
        while task.burn_ms and thread_time() < end:
            pass
        return 1.0
