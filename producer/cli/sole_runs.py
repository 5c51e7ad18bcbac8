"""Runs of a worker that is alone in its group: redrives, and the acceptance of gaps.

A run is for one thread, which has to call it every few seconds, because these calls poll the group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from tidegate.producer.core import events as on
from tidegate.producer.core.sole_workers import SoleWorker
from tidegate.producer.driver.loop import FleetWorker
from tidegate.producer.driver.runtime import SystemClock
from tidegate.producer.errors import (
    EndedInGap,
    GapNotAccepted,
    PositionExpired,
    RedriveFailed,
    TokenRefused,
)
from tidegate.producer.messages import ChangeMessage, DeadLetter, ParkedChange, PublishableRecord
from tidegate.producer.ports import ChangeStream, Clock
from tidegate.producer.translation.parked_changes import ParkedSurvey, Selection, batches, same_key
from tidegate.schemas.errors import ConfigError, ProducerError, SchemaError
from tidegate.schemas.instants import NS_PER_US, US_PER_SECOND, parse_rfc3339_ns
from tidegate.schemas.progress import PartitionGap, TokenSnapshot


class SoleRun:
    """One run: `join`, `keep_alive` during the preparation, the subclass's transaction, `close`.

    `failed` makes the error for a run that did nothing, from a reason; `patience_s` is how long it
    may take to own all slots.
    """

    failed: Callable[[str], ProducerError]

    def __init__(
        self,
        fleet_worker: FleetWorker,
        core: SoleWorker,
        *,
        patience_s: float,
        clock: Clock | None = None,
    ) -> None:
        self._fleet_worker = fleet_worker
        self._core = core
        self._patience_us = round(patience_s * US_PER_SECOND)
        self._clock = clock or SystemClock()

    def join(self) -> None:
        """Join the group and take over all slots.

        Raises the error of `failed` if it does not get all of them, and the error that stops the
        worker.
        """
        give_up_at_us = self._clock.monotonic_us() + self._patience_us
        self._fleet_worker.start()
        while not self._core.is_ready:
            self._step()
            if self._clock.monotonic_us() > give_up_at_us:
                raise self.failed("other members of the group have slots")

    def keep_alive(self) -> None:
        """Poll the group; raises the error of `failed` if slots were taken away."""
        self._step()
        if not self._core.is_ready:
            raise self.failed("slots were taken away: a worker has joined the group")

    def close(self) -> None:
        """Leave the group and release the clients."""
        self._fleet_worker.close(leaves_group=True)

    def _finish(self, event: on.Event) -> None:
        """Process the last event; return once the transaction is committed."""
        self._fleet_worker.process(event)
        while self._fleet_worker.step():
            pass
        if self._fleet_worker.error is not None:
            raise self._fleet_worker.error

    def _abort(self) -> None:
        """Make the core abort its transaction, so that readers do not wait for its time-out."""
        self._fleet_worker.request_drain()
        while self._fleet_worker.step():
            pass

    def _process(self, event: on.Event) -> None:
        self._fleet_worker.process(event)
        self._raise_error()

    def _step(self) -> None:
        if not self._fleet_worker.step():
            self._raise_error()
            raise self.failed("it was asked to stop")

    def _raise_error(self) -> None:
        if self._fleet_worker.error is not None:
            raise self._fleet_worker.error


_KEEP_ALIVE_CHANGES = 500


def put_back_parked(
    read: Callable[[], Iterable[DeadLetter | None]],
    translate: Callable[[ParkedChange], ChangeMessage],
    redriver: Redriver | None,
    *,
    todays_key: Callable[[str, bytes], bytes] = same_key,
    topic: str | None = None,
    progress: Callable[[str, int], None] = lambda _step, _done: None,
) -> Selection:
    """Put back the parked changes of every key that can be put back; return these keys.

    The dead-letter topic is read three times: for the changes that were put back before, for the
    keys that can be put back now, and for the changes of those keys.

    `read` reads the dead-letter topic from its beginning, `translate` makes the message of a parked
    change or raises one of `pipeline.POISON`; its key is what `todays_key` returns for the topic
    and the parked key.  Without a redriver, which has joined the group, nothing is put back.
    `topic` restricts it to one data topic; `progress` is called with the step and its number of
    records.

    Raises what `read` and `translate` raise, and RedriveFailed; then nothing was put back, unless
    the outcome of a commit is unknown.
    """

    def reading(step: str) -> Iterator[DeadLetter | None]:
        """Read the topic from its beginning; the group is polled in between."""
        for number, letter in enumerate(read()):
            if redriver is not None and (letter is None or not number % _KEEP_ALIVE_CHANGES):
                redriver.keep_alive()
            progress(step, number)
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
    """One redrive: `join`, `keep_alive` during the preparation, `put_back`, `close`."""

    failed = RedriveFailed

    def put_back(
        self, numbers: frozenset[int], batches: Iterable[tuple[PublishableRecord, ...]]
    ) -> None:
        """Publish all batches in one transaction, in which stream partitions forget the keys.

        Returns once it is committed.  Raises RedriveFailed, or what ended the reading of the
        batches, also KeyboardInterrupt, after the transaction was aborted.
        """
        self._process(on.RedriveBegan(numbers))
        try:
            for batch in batches:
                if batch:
                    self._process(on.RedriveRead(batch))
                self._step()
        except BaseException:
            self._abort()
            raise
        self._finish(on.RedriveEnded())


_PROBE_HEARTBEAT_MS = 1_000


async def find_gap(
    stream: ChangeStream,
    token: TokenSnapshot,
    *,
    margin_us: int,
    end_ns: int | None,
    accepted_by: str,
    now_us: int,
) -> PartitionGap:
    """Return the gap to accept so that a stream partition can be read on; reads nothing.

    Spanner is asked: its refusal of a query at the position names the time since which records are
    kept, and a query at the end of the gap shows whether the stream partition can be read there.
    The gap ends `margin_us` after the first instant that can be read now, because that instant
    moves on with time and the stream partition is read again only when workers run.  `end_ns` is
    the end of a bounded stream.  Raises ConfigError if its position has not expired or Spanner does
    not name the time, EndedInGap if it or the whole stream has ended before the gap's end, and the
    other errors of a query.
    """
    name, position_us = token.token, token.watermark_us
    refusal = await _refusal(stream, name, max(token.start_ns, position_us * NS_PER_US))
    if refusal is None:
        raise ConfigError(
            "the position of this stream partition has not expired: it can be read on",
            hint="Restart its worker",
            token=name,
        )
    if isinstance(refusal, TokenRefused):
        raise refusal
    earliest = str(refusal.fields["lost_until"])
    if earliest == "unknown":
        raise EndedInGap(name, details=refusal.fields.get("details"))
    earliest_us = -(-_instant_ns(earliest, refusal) // NS_PER_US)
    # The query begins at the watermark, one microsecond before the records that it returns.
    gap = PartitionGap(name, position_us + 1, earliest_us + margin_us + 1, accepted_by, now_us)
    is_past_end = end_ns is not None and (gap.until_us - 1) * NS_PER_US > end_ns
    if is_past_end or await _refusal(stream, name, (gap.until_us - 1) * NS_PER_US) is not None:
        raise EndedInGap(name, from_us=gap.from_us, until_us=gap.until_us)
    return gap


def _instant_ns(text: str, refusal: PositionExpired) -> int:
    """Return the time in Spanner's refusal; ConfigError if its form is unknown.

    Nothing is guessed: an earlier time cannot be read, and a later one loses changes unnoticed.
    """
    try:
        return parse_rfc3339_ns(text)
    except SchemaError as error:
        raise ConfigError(
            "Spanner names the first change that can be read in a form that is not a timestamp",
            hint=(
                "Nothing was accepted, and no repetition helps: start a new epoch and reload the "
                "tables, and report the text in `details`"
            ),
            token=refusal.fields.get("token"),
            lost_until=text,
            details=refusal.fields.get("details"),
        ) from error


async def _refusal(
    stream: ChangeStream, token: str, start_ns: int
) -> PositionExpired | TokenRefused | None:
    """Return why a stream partition cannot be read from a time on; None if it can be."""
    query = stream.query(
        token=token, start_ns=start_ns, end_ns=None, heartbeat_ms=_PROBE_HEARTBEAT_MS
    )
    try:
        await query.next_size()
    except (PositionExpired, TokenRefused) as error:
        return error
    finally:
        query.cancel()
    return None


class GapAcceptor(SoleRun):
    """One acceptance: `join`, `accept`, `close`."""

    failed = GapNotAccepted

    def accept(self, gaps: tuple[PartitionGap, ...]) -> None:
        """Write gaps, at most one for a stream partition, and pass them, in one transaction.

        Returns once it is committed.  Raises GapNotAccepted, and other errors that stop the worker.
        """
        self._finish(on.GapsAccepted(gaps))
