"""All parts that are broken on purpose for the tests of that part."""

from __future__ import annotations

from tests.mutants.broken_order import BROKEN_ORDER
from tests.mutants.broken_output import BROKEN_OUTPUT
from tests.mutants.broken_publishing import BROKEN_PUBLISHING
from tests.mutants.broken_records import BROKEN_RECORDS
from tests.mutants.broken_watermark import BROKEN_WATERMARK

MUTANTS = (*BROKEN_PUBLISHING, *BROKEN_ORDER, *BROKEN_RECORDS, *BROKEN_WATERMARK, *BROKEN_OUTPUT)
