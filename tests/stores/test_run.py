"""A submitted run with output and checkpoint in a store: killed at a step, and run again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.stores.servers import gcs_connector, hadoop_aws
from tidegate.local_stack.config import load_config
from tidegate.local_stack.demo.bank import ACCOUNTS, LEDGER, STREAM, Bank
from tidegate.local_stack.demo.bank_database import (
    create_bank_database,
    open_accounts,
    transfer_money,
)
from tidegate.local_stack.demo.conductor import CONSUMER_STEPS
from tidegate.local_stack.demo.pipeline import Pipeline
from tidegate.local_stack.parts.jvm_parts import fetched_jvm_parts
from tidegate.local_stack.parts.programs import DatabaseName, Programs, quick_start
from tidegate.local_stack.parts.stack import LocalStack

pytestmark = [pytest.mark.integration, pytest.mark.timeout(2_400)]

OPENED, TRANSFERS = 30, 40
KILLED_IN = {
    "s3a": ("sink-changelog", "sink-mirror"),
    # A run that ends once it has caught up keeps no change for the next batch.
    "gs": tuple(step for step in CONSUMER_STEPS if step != "pending"),
    "hdfs": ("sink-mirror", "state"),
}
PATIENCE_S = 400


class Runs:
    """Runs of the consumer, one after the other, as a cluster's user would submit them."""

    def __init__(self, programs, store, *, launcher):
        self.programs, self.store, self.launcher = programs, store, launcher
        self.lake = store.bucket()
        self.log = programs.folder / "submitted.log"

    def start(self):
        """Start one that ends when it has caught up."""
        programs = self.programs
        jars = [str(jar) for jar in fetched_jvm_parts().spark_jars]
        settings = {**self.store.settings, "spark.ui.enabled": "false"}
        if self.store.scheme == "gs":
            jars.append(str(gcs_connector()))
        elif self.store.scheme == "s3a":
            settings["spark.jars.packages"] = hadoop_aws()
        with self.log.open("wb") as log:
            return subprocess.Popen(
                [
                    str(Path(sys.executable).with_name("spark-submit")),
                    *("--master", "local[2]", "--jars", ",".join(jars)),
                    *("--driver-java-options", quick_start()),
                    *(word for pair in settings.items() for word in ("--conf", "=".join(pair))),
                    str(self.launcher),
                    *("run", "--until", "caught-up", "--prefix", programs.prefix),
                    *("--bootstrap-servers", programs.bootstrap_servers),
                    *("--registry-url", programs.registry_url),
                    *("--output", f"{self.lake}/bank", "--checkpoint", f"{self.lake}/_gate"),
                    *("--log-level", "debug"),
                ],
                env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
                # Spark's launcher prints what Python writes to either.
                stdout=log,
                stderr=log,
                # Its own process group: Spark's launcher, the driver and Python are killed at once.
                start_new_session=True,
            )

    def finish(self):
        assert self.start().wait(PATIENCE_S) == 0, self.log.read_text()[-3_000:]

    def kill_in(self, step):
        process = self.start()
        give_up_at = time.monotonic() + PATIENCE_S
        while f'"step": "{step}"' not in self.log.read_text():
            assert process.poll() is None, f"no {step}: {self.log.read_text()[-3_000:]}"
            assert time.monotonic() < give_up_at
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(PATIENCE_S)

    def table(self, name):
        """Return a table's rows, read by delta-rs."""
        if self.store.scheme == "hdfs":
            copy = self.programs.folder / "copies" / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            self.store.copy(f"{self.lake}/bank/{name}", copy)
            table = DeltaTable(str(copy))
        else:
            lake = self.lake.replace(f"{self.store.scheme}:", f"{self.store.direct_scheme}:")
            table = DeltaTable(f"{lake}/bank/{name}", storage_options=self.store.options)
        return table.to_pyarrow_table().to_pylist()


@pytest.mark.parametrize("store", KILLED_IN, indirect=True)
def test_killed_at_a_step_the_next_run_goes_on_and_nothing_is_lost_or_twice(
    tmp_path, repository, store
):
    killed_in = KILLED_IN[store.scheme]
    with LocalStack(load_config(data_dir=tmp_path / "stack")) as stack:
        name = DatabaseName(address=stack.spanner_address)
        database = create_bank_database(name)
        start = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        bank = Bank(accounts=OPENED, seed=1)
        open_accounts(database, bank)
        programs = Programs(
            folder=tmp_path,
            bootstrap_servers=stack.bootstrap_servers,
            registry_url=stack.registry_url,
            spanner_address=stack.spanner_address,
            database=name,
            stream=STREAM,
            prefix="bank",
        )
        launcher = repository / "tidegate/spark_consumer/__main__.py"
        runs = Runs(programs, store, launcher=launcher)
        pipeline = Pipeline(programs)
        pipeline.start_workers(1, start=start)
        try:
            runs.finish()
            for batch, step in enumerate(killed_in):
                for number in range(batch * TRANSFERS, (batch + 1) * TRANSFERS):
                    database.run_in_transaction(transfer_money, bank.transfer(number))
                runs.kill_in(step)
            runs.finish()
            is_by_spark = "written by Spark" in runs.log.read_text()
            assert is_by_spark is (store.scheme == "hdfs"), "delta-rs reaches the others"
        finally:
            pipeline.stop()
        with database.snapshot() as snapshot:
            balances = dict(snapshot.execute_sql(f"SELECT AccountId, Balance FROM {ACCOUNTS}"))

    changes = runs.table(f"changelog/{ACCOUNTS}") + runs.table(f"changelog/{LEDGER}")
    assert len(changes) == OPENED + 3 * TRANSFERS * len(killed_in)
    places = sorted((change["release"], change["ordinal"]) for change in changes)
    assert [place for _, place in places] == [
        place
        for release in sorted({r for r, _ in places})
        for place in range(sum(r == release for r, _ in places))
    ]
    assert len({change["order_key"] for change in changes}) == len(changes)
    mirror = runs.table(f"mirror/{ACCOUNTS}")
    assert {row["AccountId"]: row["Balance"] for row in mirror} == balances
