"""What a table's owner has set that refuses our writes: the error names it, and what to change.

Delta and delta-rs both refuse a merge into a table for appends only, and Delta a row that breaks a
constraint.  Neither passes by itself: each run would end with the same error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from tidegate.schemas.errors import ConfigError

_APPENDS_ONLY = re.compile(r"DELTA_CANNOT_MODIFY_APPEND_ONLY|table is append-only")
_CONSTRAINT = re.compile(
    r"DELTA_VIOLATE_CONSTRAINT_WITH_VALUES\W.*?CHECK constraint (.{1,300}?) violated", re.DOTALL
)
"""The text also has the row's values; the constraint alone is shown."""


@contextmanager
def named_refusals(topic: str) -> Iterator[None]:
    """Turn a refusal within the block into a ConfigError; `topic` is that of the written table."""
    try:
        yield
    except ConfigError:
        raise
    except Exception as failure:
        text = str(failure)
        if _APPENDS_ONLY.search(text):
            raise ConfigError(
                "a table of the output is for appends only, and a release changes its rows",
                hint=(
                    "ALTER TABLE delta.`<output>/<sink>/<table>` SET TBLPROPERTIES "
                    "('delta.appendOnly' = 'false'), then start again"
                ),
                topic=topic,
            ) from failure
        found = _CONSTRAINT.search(text)
        if found is None:
            raise
        raise ConfigError(
            "a constraint on a table of the output refuses a row of a release",
            hint=(
                "ALTER TABLE delta.`<output>/<sink>/<table>` DROP CONSTRAINT …, then start again: "
                "a sink writes whatever rows the source has"
            ),
            topic=topic,
            constraint=found[1],
        ) from failure
