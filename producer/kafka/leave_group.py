"""How a client leaves its consumer group, or keeps its place, without ever standing still.

A static member does not leave by closing: librdkafka sends no request to leave then.  It does when
a client that goes on unsubscribes, once all that was assigned is given up; the member id is empty
from that moment on.

Closing a client while the group's answer to its joining waits for a poll calls both callbacks from
inside librdkafka's closing: the one that assigns and then the one that revokes.  The first ends the
group's part of the client, so the last call of the second, `incremental_unassign`, is never
answered: seen in 2.16.  confluent-kafka waits for the answer with the GIL held: the whole process
stands still, signal handlers included.

So what is due is handed over first, in ordinary polls, where that call is always answered; what is
closed then has no callback left to call.  A client that keeps its place is not closed at all, but
dropped, after the same polls: with an answer of the group that no poll has taken, librdkafka ends
the client never, and its thread spins meanwhile.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress

import structlog
from confluent_kafka import Consumer, KafkaException

from tidegate.program.calls import CallHangs, call_bounded

_POLL_S = 0.05
_QUIET_POLLS = 2
_BATCH_MAX = 500
_UNASSIGN_S = 30.0
_LEAVE_S = 10.0
"""The request to leave is sent as soon as nothing is assigned any more."""
_CLOSE_S = 15.0
"""A client that can reach the group closes in less than a second."""
_log = structlog.get_logger()


def leave_group(consumer: Consumer) -> None:
    """Give up what is assigned, which calls the client's callbacks, leave, and close the client.

    A client that keeps what it owns, or does not close, is left behind: the group drops it after
    its session time-out.  Raises what the callbacks raise.
    """
    give_up_at = time.monotonic() + _UNASSIGN_S
    leave_until = time.monotonic() + _LEAVE_S
    try:
        try:
            consumer.unsubscribe()
        except KafkaException:  # a fenced client refuses this, and owns nothing
            leave_until = 0.0
        quiet_polls = 0
        while quiet_polls < _QUIET_POLLS:
            if time.monotonic() > give_up_at:
                _log.warning("the group's client keeps its slots and is left behind")
                return
            consumer.consume(_BATCH_MAX, _POLL_S)
            is_leaving = time.monotonic() < leave_until and bool(consumer.memberid())
            quiet_polls = 0 if is_leaving or consumer.assignment() else quiet_polls + 1
        if leave_until and consumer.memberid():
            _log.warning("the group's client does not leave")
    except BaseException:
        _close(consumer)
        raise
    _close(consumer)


def keep_place(clients: list[Consumer]) -> None:
    """Drop the only references to clients, whose places the group keeps until their sessions end.

    On a thread of its own: ending a client that hangs may hang too.  The clients' callbacks may
    still be called there.
    """
    threading.Thread(target=_drop, args=(clients,), name="kafka-discard", daemon=True).start()


def _drop(clients: list[Consumer]) -> None:
    """Hand over what is due and drop the clients; no variable may refer to one."""
    with suppress(KafkaException, RuntimeError):  # the second of a client that is closed already
        for place in range(len(clients)):
            for _ in range(_QUIET_POLLS):
                clients[place].consume(_BATCH_MAX, _POLL_S)
    clients.clear()


def _close(consumer: Consumer) -> None:
    try:
        call_bounded(consumer.close, within_s=_CLOSE_S)
    except CallHangs:
        _log.warning("the group's client does not close and is left behind")
