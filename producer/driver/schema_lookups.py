"""Look-ups of schemas outside of the worker's loop, so that no registry blocks the loop.

A registry may take a minute to answer, or ask for a pause (`Retry-After`).  If a member of the
group waited for it in its loop, it would poll too late: it would release no slot and be removed
from the group.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import structlog

from tidegate.schemas.errors import TidegateError

_PATIENCE_S = 300.0
_PAUSE_MIN_S, _PAUSE_MAX_S = 1.0, 30.0
_log = structlog.get_logger()


class SchemaLookups:
    """Schemas of a registry by id, each looked up in its own thread; thread-safe.

    `schema_of` may block, and raises the errors of `schema`.
    """

    def __init__(
        self,
        schema_of: Callable[[int], Mapping[str, Any]],
        *,
        clock_s: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._schema_of = schema_of
        self._clock_s = clock_s
        self._sleep = sleep
        self._lock = threading.Lock()
        self._requested: set[int] = set()
        self._answers: dict[int, Mapping[str, Any] | Exception] = {}

    def has_answer(self, schema_id: int) -> bool:
        """Whether `schema` returns or raises at once; starts a look-up if it does not.

        Never blocks.  A failed look-up is repeated for five minutes if its error may pass.
        """
        with self._lock:
            if schema_id in self._answers:
                return True
            if schema_id not in self._requested:
                self._requested.add(schema_id)
                threading.Thread(
                    target=self._ask, args=(schema_id,), name=f"schema-{schema_id}", daemon=True
                ).start()
        return False

    def schema(self, schema_id: int) -> Mapping[str, Any]:
        """Return the schema of an id whose look-up has ended.

        Raises the error of the look-up once; then the schema is looked up again.
        """
        with self._lock:
            answer = self._answers[schema_id]
            if isinstance(answer, Exception):
                del self._answers[schema_id]
                self._requested.discard(schema_id)
                raise answer
        return answer

    def _ask(self, schema_id: int) -> None:
        give_up_at_s, pause_s = self._clock_s() + _PATIENCE_S, _PAUSE_MIN_S
        while True:
            answer = self._asked_once(schema_id)
            may_pass = isinstance(answer, TidegateError) and answer.retriable
            if not may_pass or self._clock_s() >= give_up_at_s:
                break
            _log.warning("schema not found out yet", schema_id=schema_id, error=str(answer))
            self._sleep(pause_s)
            pause_s = min(2 * pause_s, _PAUSE_MAX_S)
        with self._lock:
            self._answers[schema_id] = answer

    def _asked_once(self, schema_id: int) -> Mapping[str, Any] | Exception:
        try:
            return self._schema_of(schema_id)
        except Exception as error:  # noqa: BLE001 - raised where the answer is wanted
            return error
