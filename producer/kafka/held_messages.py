"""Messages that were read and wait for the first of them: its schema is not known yet."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from confluent_kafka import Message


class HeldMessages:
    """What a client read, in its order, up to the first message that is not ready; one thread."""

    def __init__(self) -> None:
        """Hold nothing."""
        self._held: list[Message] = []

    def __bool__(self) -> bool:
        """Whether messages wait."""
        return bool(self._held)

    def take(
        self, consume: Callable[[], list[Message]], is_ready: Callable[[Message], bool]
    ) -> Iterator[Message]:
        """Yield the held messages, or what `consume` returns if there are none.

        Ends before the first one that is not ready, from which on they are held.
        """
        messages = self._held or consume()
        self._held = []
        for number, message in enumerate(messages):
            if not is_ready(message):
                self._held = messages[number:]
                return
            yield message
