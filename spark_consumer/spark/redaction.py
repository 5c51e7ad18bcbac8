"""Keeps logins out of what Spark shows of plans: explain, its UI, its event log.

Spark's Kafka source takes its login as an option, and a plan's text shows the options of a source.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


SETTING = "spark.sql.redaction.string.regex"
"""What Spark replaces in the texts of plans."""

_KINDS = "(?i:password|secret|token|passphrase|assertion|credential)"
_LOGINS = (
    # In `sasl.jaas.config`, quoted or not.
    rf'(?s:\w*{_KINDS}\w*\s*=\s*(?:"(?:[^"\\]|\\.)*"|[^\s;",)]+))'
    r"|(?s:-----BEGIN [A-Z ]*PRIVATE KEY-----.*?-----END [A-Z ]*PRIVATE KEY-----)"
    # An option, up to the next one, the end of all, or else the end of the text.
    rf"|(?s:{_KINDS} -> .*?(?=, [\w.]+ -> |\),None|$))"
)


def hide_logins(spark: SparkSession) -> None:
    """Let a session replace logins in the texts of plans, beside what it replaces already."""
    known = spark.conf.get(SETTING, "") or ""
    if _LOGINS not in known:
        spark.conf.set(SETTING, f"{known}|{_LOGINS}" if known else _LOGINS)
