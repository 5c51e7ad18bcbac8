"""The notebook of docs/notebooks/ is executed: its figures are those that were put in."""

from __future__ import annotations

import base64
import json

import pytest

from tests.integration.notebook_run import ACCOUNTS, execute

pytestmark = [pytest.mark.integration, pytest.mark.slow]

TRANSACTIONS = 40
"""That the notebook makes, with a change of each table."""

LAST = """
import json
frame = releases.filter(like="rows.")
print(json.dumps({
    "accounts": [row.asDict() for row in spark.table("bank.accounts").collect()],
    "ledger": [row.asDict(recursive=True)["Amount"] for row in tables.table("ledger").collect()],
    "by_schema": tg.as_of(spark, "bank", datetime.now(UTC)).table("ledger").count(),
    "is_proved": report.is_proved,
    "changes": report.changes,
    "rows": int(releases["rows"].sum()),
    "by_table": {name: int(frame[name].sum()) for name in frame},
    "releases": releases["release"].tolist(),
    "lags": releases["lag_s"].tolist(),
    "status": [figures["releases"] for figures in (tg.status(lake / "_checkpoint"),)],
    "is_active": query.isActive,
}))
"""


@pytest.mark.timeout(900)
def test_the_notebook_shows_what_was_put_in(tmp_path):
    notebook, faults = execute(tmp_path, last=LAST)

    *cells, last = [cell for cell in notebook.cells if cell.cell_type == "code"]
    found = json.loads(last.outputs[0].text)
    balances = {row["AccountId"]: row["Balance"] for row in found["accounts"]}
    assert len(balances) == ACCOUNTS + 1
    assert balances["notebook"] == sum(found["ledger"]) == TRANSACTIONS
    assert found["by_schema"] == len(found["ledger"]) == TRANSACTIONS
    changes = ACCOUNTS + 2 * TRANSACTIONS
    assert found["is_proved"]
    assert found["changes"] == found["rows"] == changes
    assert found["by_table"] == {
        "rows.accounts": ACCOUNTS + TRANSACTIONS,
        "rows.ledger": TRANSACTIONS,
    }
    assert found["releases"] == list(range(len(found["releases"])))
    assert found["status"][0] >= len(found["releases"]) >= 2
    assert all(lag > 0 for lag in found["lags"])
    assert not found["is_active"]
    assert faults == []

    # Lines of Spark's start go to standard error.
    outputs = [one for cell in cells for one in cell.outputs if one.output_type != "stream"]
    assert {output.output_type for output in outputs} == {"execute_result"}
    forms = [output.data for output in outputs]
    (picture,) = [data["image/png"] for data in forms if "image/png" in data]
    assert base64.b64decode(picture).startswith(b"\x89PNG")
    # The tables, the names, the changes, status, audit and the releases.
    assert sum("<table" in data.get("text/html", "") for data in forms) == 6
