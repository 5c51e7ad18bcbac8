"""Restores a host from its data directory."""

from __future__ import annotations

import logging

from google.cloud.spanner_admin_instance_v1 import types as instance_admin

from spanner_simulator.core.database import Database
from spanner_simulator.core.journal import entry_from_plain
from spanner_simulator.errors import SpannerError
from spanner_simulator.server.host import Host
from spanner_simulator.server.keeping.data_directory import DataDirectoryError, KeptDatabase
from spanner_simulator.server.keeping.journal_file import DamagedJournalError

_log = logging.getLogger(__name__)


def restore(host: Host) -> None:
    """Serve the contents of the host's directory; does nothing without one.

    Time does not go back: the clock is advanced if the directory has later times.  Raises
    `DataDirectoryError` for a journal that cannot be replayed.
    """
    directory = host.keeper.directory
    if directory is None:
        return
    for message in directory.messages:
        _log.warning(message)
    for name, plain in directory.instances.items():
        host.instances[name] = instance_admin.Instance.pb().FromString(plain)
    latest_us = directory.time_us
    if directory.ahead_us is not None:
        # A running clock may have closed times up to where it would be by now.
        latest_us = max(latest_us, host.clock.running_us(directory.ahead_us))
    restored = [(_replayed(host, stored), stored) for stored in directory.databases.values()]
    for database, _ in restored:
        commits = database.clock
        latest_us = max(latest_us, commits.last_commit_us, commits.closed_us + 1)
    host.clock.advance(max(0, latest_us - host.now_us()))
    host.keep_time()
    # Last, because churn that starts here must not run while the clock is advanced.
    for database, stored in restored:
        host.resume_database(database, stored)
        database.end_replay(now_us=host.now_us())


def _replayed(host: Host, stored: KeptDatabase) -> Database:
    database = host.new_database(stored.name, dialect=stored.dialect)
    number = 0
    try:
        for number, plain in enumerate(stored.journal.entries(), start=1):  # noqa: B007  # for the message
            database.replay(entry_from_plain(plain))
    except (SpannerError, DamagedJournalError) as error:
        raise DataDirectoryError(
            f"cannot restore {stored.name} from {stored.journal.path}, entry {number}: {error}"
        ) from error
    return database
