"""What Spark counted on the side of a job: `Observation.get` with an end to its waiting."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tidegate.spark_consumer.errors import CountsMissing

if TYPE_CHECKING:
    from pyspark.sql import Observation


_PATIENCE_S = 60.0
_LOOK_EVERY_S = 0.005


def observed(
    observation: Observation,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> dict[str, Any]:
    """Return the counts of the first job over an observed frame, once it has ended.

    Spark delivers them a moment after the job, and never where it lost the event, or where the job
    ran in another session than the frame's.  Raises CountsMissing after a minute.
    """
    counts: Any = observation._jo  # noqa: SLF001 - pyspark has no public way to wait with an end
    give_up_at = clock() + _PATIENCE_S
    while not counts.future().isCompleted():
        if clock() >= give_up_at:
            raise CountsMissing(
                "Spark has not reported what a job counted",
                hint="A restart repeats the batch",
                waited_s=_PATIENCE_S,
            )
        sleep(_LOOK_EVERY_S)
    return observation.get
