"""All parts that are broken on purpose for the tests of that part."""

from __future__ import annotations

from tests.mutants.broken_answers import BROKEN_ANSWERS
from tests.mutants.broken_backfills import BROKEN_BACKFILLS
from tests.mutants.broken_bad_records import BROKEN_BAD_RECORDS
from tests.mutants.broken_catalog import BROKEN_CATALOG
from tests.mutants.broken_columns import BROKEN_COLUMNS
from tests.mutants.broken_commands import BROKEN_COMMANDS
from tests.mutants.broken_compaction import BROKEN_COMPACTION
from tests.mutants.broken_counting import BROKEN_COUNTING
from tests.mutants.broken_datastream import BROKEN_DATASTREAM
from tests.mutants.broken_datastream_files import BROKEN_DATASTREAM_FILES
from tests.mutants.broken_decoding import BROKEN_DECODING
from tests.mutants.broken_events import BROKEN_EVENTS
from tests.mutants.broken_figures import BROKEN_FIGURES
from tests.mutants.broken_file_source import BROKEN_FILE_SOURCE
from tests.mutants.broken_freshness import BROKEN_FRESHNESS
from tests.mutants.broken_history import BROKEN_HISTORY
from tests.mutants.broken_iceberg import BROKEN_ICEBERG
from tests.mutants.broken_late_writes import BROKEN_LATE_WRITES
from tests.mutants.broken_library import BROKEN_LIBRARY
from tests.mutants.broken_lookups import BROKEN_LOOKUPS
from tests.mutants.broken_names import BROKEN_NAMES
from tests.mutants.broken_openings import BROKEN_OPENINGS
from tests.mutants.broken_orders import BROKEN_ORDERS
from tests.mutants.broken_positions import BROKEN_POSITIONS
from tests.mutants.broken_publishing import BROKEN_PUBLISHING
from tests.mutants.broken_schemas import BROKEN_SCHEMAS
from tests.mutants.broken_sessions import BROKEN_SESSIONS
from tests.mutants.broken_sinks import BROKEN_SINKS
from tests.mutants.broken_topics import BROKEN_TOPICS

__all__ = ["MUTANTS"]

MUTANTS = (
    *BROKEN_PUBLISHING,
    *BROKEN_POSITIONS,
    *BROKEN_OPENINGS,
    *BROKEN_DATASTREAM,
    *BROKEN_FILE_SOURCE,
    *BROKEN_DATASTREAM_FILES,
    *BROKEN_DECODING,
    *BROKEN_COLUMNS,
    *BROKEN_COMPACTION,
    *BROKEN_BAD_RECORDS,
    *BROKEN_COUNTING,
    *BROKEN_FIGURES,
    *BROKEN_EVENTS,
    *BROKEN_HISTORY,
    *BROKEN_ICEBERG,
    *BROKEN_LATE_WRITES,
    *BROKEN_LIBRARY,
    *BROKEN_LOOKUPS,
    *BROKEN_NAMES,
    *BROKEN_CATALOG,
    *BROKEN_SESSIONS,
    *BROKEN_SCHEMAS,
    *BROKEN_SINKS,
    *BROKEN_TOPICS,
    *BROKEN_BACKFILLS,
    *BROKEN_ORDERS,
    *BROKEN_COMMANDS,
    *BROKEN_FRESHNESS,
    *BROKEN_ANSWERS,
)
