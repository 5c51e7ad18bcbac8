"""Keeps logins out of what Spark shows of plans: explain, its UI, its event log.

Spark's Kafka source takes its login as an option, and a plan's text shows the options of a source.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


SETTING = "spark.sql.redaction.string.regex"
"""What Spark replaces in the texts of plans."""

_LOGINS = (
    r'(?s:password="(?:[^"\\]|\\.)*")'
    r"|(?s:-----BEGIN [A-Z ]*PRIVATE KEY-----.*?-----END [A-Z ]*PRIVATE KEY-----)"
    r"|ssl\.key\.password -> [^,)]*"
)


def hide_logins(spark: SparkSession) -> None:
    """Let a session replace logins in the texts of plans, beside what it replaces already."""
    known = spark.conf.get(SETTING, "") or ""
    if _LOGINS not in known:
        spark.conf.set(SETTING, f"{known}|{_LOGINS}" if known else _LOGINS)
