"""Drives the worker that puts parked changes back: into the group, through its one transaction.

It reads the dead-letter topic three times: which changes were put back before, which keys can be
put back now, and those keys' changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from tidegate.producer.core import events as on
from tidegate.producer.driver.sole_run import SoleRun
from tidegate.producer.errors import RedriveFailed
from tidegate.producer.messages import (
    ChangeMessage,
    DeadLetter,
    ParkedChange,
    PublishableRecord,
)
from tidegate.producer.translation.parked_changes import ParkedSurvey, Selection, batches, same_key

_KEEP_ALIVE_CHANGES = 500


def put_back_parked(
    read: Callable[[], Iterable[DeadLetter | None]],
    translate: Callable[[ParkedChange], ChangeMessage],
    redriver: Redriver | None,
    *,
    todays_key: Callable[[str, bytes], bytes] = same_key,
    topic: str | None = None,
    progress: Callable[[str, int], None] = lambda _what, _done: None,
) -> Selection:
    """Put back the parked changes of every key that can be; return which keys these are.

    `read` reads the dead-letter topic from its beginning, `translate` makes the message of a parked
    change or raises one of `pipeline.POISON`; its key is what `todays_key` returns for the topic
    and the parked key.  Without a redriver, which has joined the group, nothing is put back.
    `topic` restricts it to one data topic; `progress` is called with what is being done and how
    many records are done.

    Raises what `read` and `translate` raise, and RedriveFailed; then nothing was put back, except
    that a commit may have no known outcome.
    """

    def reading(what: str) -> Iterator[DeadLetter | None]:
        """Read the topic from its beginning; the group is polled in between."""
        for number, letter in enumerate(read()):
            if redriver is not None and (letter is None or not number % _KEEP_ALIVE_CHANGES):
                redriver.keep_alive()
            progress(what, number)
            yield letter

    survey = ParkedSurvey(translate, todays_key)
    for letter in reading("looking for what was put back before"):
        if letter is not None:
            survey.note_redriven(letter)
    for letter in reading("translating parked changes"):
        if letter is not None:
            survey.add(letter)
    selection = survey.select(topic)
    if redriver is not None and selection.chosen:
        again = reading("putting changes back")
        redriver.put_back(selection.numbers, batches(again, survey, selection, translate))
    return selection


class Redriver(SoleRun):
    """One redrive: `join`, `keep_alive` while it is prepared, `put_back`, `close`."""

    failed = RedriveFailed

    def put_back(
        self, numbers: frozenset[int], batches: Iterable[tuple[PublishableRecord, ...]]
    ) -> None:
        """Publish all batches in one transaction, in which stream partitions forget the keys.

        Returns once it is committed.  Raises RedriveFailed, or what reading the batches raised,
        after the transaction was aborted.
        """
        self._process(on.RedriveBegan(numbers))
        try:
            for batch in batches:
                if batch:
                    self._process(on.RedriveRead(batch))
                self._step()
        except Exception:
            self._abort()
            raise
        self._finish(on.RedriveEnded())
