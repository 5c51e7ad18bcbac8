"""The checks of ../README.md by the official Python client: a JSON line for each."""

from __future__ import annotations

import postgres
import rows
import streams
import transactions
from harness import run

run([*rows.CHECKS, *transactions.CHECKS, *streams.CHECKS, *postgres.CHECKS])
