"""Verbs on change streams: turn stream partitions, hold them, end queries, read the commit log."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import (
    Callable,
    Iterator,  # read at run time with the rest of the signature
)
from concurrent.futures import CancelledError
from typing import Any, Literal

from spanner_simulator.control.description import describe_stream_partition
from spanner_simulator.control.on_loop import OnLoop
from spanner_simulator.control.verb import action, question
from spanner_simulator.core.change_streams.change_streams import StreamState
from spanner_simulator.core.change_streams.churn import (
    CHURN_LIFE_MS_MAX,
    CHURN_LIVE_MAX,
    CHURN_WEIGHTS,
    ChurnSettings,
)
from spanner_simulator.core.change_streams.commit_log import LoggedTransaction
from spanner_simulator.core.change_streams.stream_partition import StreamPartition
from spanner_simulator.core.database import Database
from spanner_simulator.errors import Code, SpannerError, invalid_argument, not_found
from spanner_simulator.server.host import Host, HostedDatabase

# How long a follower of a commit log sleeps before it checks whether its client is still there.
_PATIENCE_S = 0.5


def status_code(name: str) -> Code:
    """The status code of a name; INVALID_ARGUMENT for an unknown one."""
    if name not in Code.__members__:
        raise invalid_argument(f"The argument code must be one of {', '.join(Code.__members__)}.")
    return Code[name]


class StreamVerbs(OnLoop):
    """The verbs of change streams. All raise `SpannerError`."""

    @question()
    def stream_partitions(
        self, database: str, stream: str, *, ended: bool = False
    ) -> list[dict[str, Any]]:
        """The living stream partitions in key order; with `ended` all that ever were, by start."""

        def act(host: Host) -> list[dict[str, Any]]:
            hosted, state = _find(host, database, stream)
            chosen = state.partitions.live
            if ended:
                chosen = sorted(
                    state.partitions.by_token.values(), key=lambda partition: partition.start_us
                )
            return [_describe(host, hosted, partition) for partition in chosen]

        return self._run(act)

    @action
    def split(
        self,
        database: str,
        stream: str,
        *,
        token: str | None = None,
        table: str | None = None,
        key: list[Any] | None = None,
    ) -> dict[str, Any]:
        """Split the stream partition of a token, or at a table's key, or the busiest one."""
        return self._turn(
            database,
            lambda target, now_us: target.streams.split(
                stream, now_us=now_us, token=token, table=table, key=key
            ),
        )

    @action
    def merge(
        self, database: str, stream: str, *, tokens: list[str] | None = None
    ) -> dict[str, Any]:
        """Merge neighbours by their tokens, or the least busy pair."""
        return self._turn(
            database,
            lambda target, now_us: target.streams.merge(stream, now_us=now_us, tokens=tokens or ()),
        )

    @action
    def move(self, database: str, stream: str, *, token: str | None = None) -> dict[str, Any]:
        """Replace the stream partition of a token, or the busiest, by a child with its keys.

        With mutable key ranges, half of its keys go to the least busy other one instead.
        """
        return self._turn(
            database, lambda target, now_us: target.streams.move(stream, now_us=now_us, token=token)
        )

    @action
    def move_keys(
        self,
        database: str,
        stream: str,
        *,
        source: str,
        destination: str,
        table: str | None = None,
        first_key: list[Any] | None = None,
        last_key: list[Any] | None = None,
    ) -> dict[str, Any]:
        """Mutable key ranges: give keys of one living stream partition (a token) to another.

        Keys of `table` from `first_key` to `last_key`, both inclusive; without a table, all.
        """
        return self._turn(
            database,
            lambda target, now_us: target.streams.move_keys(
                stream,
                now_us=now_us,
                source=source,
                destination=destination,
                table=table,
                first_key=first_key,
                last_key=last_key,
            ),
        )

    def _turn(
        self, database: str, act: Callable[[Database, int], list[StreamPartition]]
    ) -> dict[str, Any]:
        def run(host: Host) -> dict[str, Any]:
            hosted = host.database(database)
            children = act(hosted.database, host.now_us())
            # A turn closes all time before it, and is the next thing that happens.
            at_us = hosted.database.clock.closed_us + 1
            return {
                "start_timestamp_us": at_us,
                "parents": list(children[0].parents) if children[0].start_us == at_us else [],
                "children": [_describe(host, hosted, child) for child in children],
            }

        return self._run(run)

    @action
    def churn(
        self,
        database: str,
        stream: str,
        *,
        enabled: bool = True,
        mean_life_ms: int = 5000,
        weights: dict[Literal["split", "merge", "move"], float] | None = None,
        seed: int = 0,
        live_max: int = 64,
    ) -> dict[str, Any]:
        """Let stream partitions split, merge and move at random, or stop that.

        While `live_max` are live, merges take the place of splits.
        """
        chosen = CHURN_WEIGHTS if weights is None else weights
        for name, value, greatest in (
            ("mean_life_ms", mean_life_ms, CHURN_LIFE_MS_MAX),
            ("live_max", live_max, CHURN_LIVE_MAX),
        ):
            if not 1 <= value <= greatest:
                raise invalid_argument(f"The argument {name} must lie in [1, {greatest}].")
        if (
            set(chosen) - set(CHURN_WEIGHTS)
            or min(chosen.values(), default=0) < 0
            or not any(chosen.values())
        ):
            raise invalid_argument(
                "The argument weights must have numbers, not all 0, for split, merge and move."
            )

        def act(host: Host) -> dict[str, Any]:
            hosted, state = _find(host, database, stream)
            if enabled:
                settings = ChurnSettings(mean_life_ms, live_max, chosen)
                host.churn.start(hosted.database, stream, settings, seed=seed)
            else:
                host.churn.stop(hosted.database, state.name)
            return {"enabled": enabled}

        return self._run(act)

    @action
    def interrupt(
        self,
        database: str,
        stream: str,
        *,
        token: str | None = None,
        code: str = "UNAVAILABLE",
        message: str = "Interrupted on request",
    ) -> dict[str, Any]:
        """End the running queries of a change stream, or of one stream partition, with a status."""
        error = SpannerError(status_code(code), message)

        def act(host: Host) -> dict[str, Any]:
            hosted, state = _find(host, database, stream)
            tokens = list(state.partitions.by_token) if token is None else [_known(state, token)]
            return {"interrupted": hosted.interrupt(tokens, error)}

        return self._run(act)

    @action
    def hold(self, database: str, stream: str, *, token: str | None = None) -> dict[str, Any]:
        """Let one stream partition, or all living ones, send nothing until released."""

        def act(host: Host) -> dict[str, Any]:
            _, state = _find(host, database, stream)
            tokens = [live.token for live in state.partitions.live]
            host.holds.hold(tokens if token is None else [_known(state, token)])
            return {"held": list(host.holds)}

        return self._run(act)

    @action
    def release(self, database: str, stream: str, *, token: str | None = None) -> dict[str, Any]:
        """End the hold of one stream partition, or of all of a change stream."""

        def act(host: Host) -> dict[str, Any]:
            _, state = _find(host, database, stream)
            tokens = list(state.partitions.by_token) if token is None else [_known(state, token)]
            return {"released": host.holds.release(tokens)}

        return self._run(act)

    @action
    def release_all(self) -> dict[str, Any]:
        """End all holds, of all databases."""
        return self._run(lambda host: {"released": host.holds.release()})

    @question(is_lines=True, first="from")
    def commit_log(self, database: str, stream: str, *, first: int = 0) -> list[dict[str, Any]]:
        """What was committed so far, from transaction number `first` on: the ground truth."""
        entries = self._run(lambda host: _logged_from(_find(host, database, stream)[1], first))
        # Entries never change, so they are described outside of the event loop, which takes long.
        return [entry.as_json() for entry in entries]

    @question(is_lines=True, first="from")
    def follow_commit_log(
        self, database: str, stream: str, *, first: int = 0, idle_ms: int = 60_000
    ) -> Iterator[dict[str, Any]]:
        """As `commit_log`, then each transaction as it commits.

        Ends with the change stream or the simulator, or when nothing came for `idle_ms`. The first
        refusal comes with the first element.
        """
        idle_s = 0.0
        state: StreamState | None = None
        while self.is_running:
            try:
                entries, state = self._run_coroutine(
                    functools.partial(
                        _await_commits, database=database, stream=stream, first=first, former=state
                    )
                )
            except (CancelledError, RuntimeError):
                if self._attached is not None:
                    raise
                return
            except SpannerError:
                if state is not None:
                    return
                raise
            for entry in entries:
                yield entry.as_json()
                first = entry.index + 1
            idle_s = 0.0 if entries else idle_s + _PATIENCE_S
            if idle_s * 1000 >= idle_ms:
                return


async def _await_commits(
    host: Host, *, database: str, stream: str, first: int, former: StreamState | None
) -> tuple[list[LoggedTransaction], StreamState]:
    """New entries, or none after a while; NOT_FOUND if no more can come.

    Also when another change stream has taken the name of the `former` one, because its log is
    another one.
    """
    hosted, state = _find(host, database, stream)
    if former is not None and state is not former:
        raise not_found(f"Change Stream not found: {stream}")
    try:
        async with asyncio.timeout(_PATIENCE_S):
            while not state.is_dropped:
                news = hosted.news
                entries = _logged_from(state, first)
                if entries:
                    return entries, state
                await news.wait()
    except TimeoutError:
        pass
    return [], state


def _logged_from(state: StreamState, first: int) -> list[LoggedTransaction]:
    log = state.log.transactions
    return log[max(0, first - log[0].index) :] if log else []


def _find(host: Host, database: str, stream: str) -> tuple[HostedDatabase, StreamState]:
    hosted = host.database(database)
    return hosted, hosted.database.streams.state(stream)


def _known(state: StreamState, token: str) -> str:
    if token not in state.partitions.by_token:
        raise not_found(f"Stream partition not found: {token}")
    return token


def _describe(host: Host, hosted: HostedDatabase, partition: StreamPartition) -> dict[str, Any]:
    return describe_stream_partition(hosted, partition, is_held=partition.token in host.holds)
