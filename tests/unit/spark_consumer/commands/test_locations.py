"""Output and checkpoint are checked before Spark starts."""

from __future__ import annotations

import json
from pathlib import Path
from zipfile import ZipFile

import pytest

from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.checkpoint.file_systems import FILE_SYSTEMS
from tidegate.spark_consumer.commands import locations
from tidegate.spark_consumer.commands.locations import require_locations, require_release
from tidegate.spark_consumer.config import SPARK_PACKAGES, ConsumerConfig
from tidegate.spark_consumer.core.file_names import QUERY_FILE
from tidegate.spark_consumer.sinks.manifest import Manifest, manifest_name

S3 = "s3a://lake/orders"
ELSEWHERE = {
    "HADOOP_CONF_DIR": "/etc/hadoop",
    "PYSPARK_GATEWAY_PORT": "1",
    "PYSPARK_SUBMIT_ARGS": "--jars hadoop-aws-3.4.1.jar pyspark-shell",
    "SPARK_CONF_DIR": "/etc/spark",
    "SPARK_DIST_CLASSPATH": "/opt/hadoop/lib/*",
    "SPARK_HOME": "/opt/spark",
    "YARN_CONF_DIR": "/etc/hadoop",
}
"""What may name a default file system, or the jar of another one."""

JAR = "hadoop-aws-3.4.1.jar"
S3A_ENTRY = f"{FILE_SYSTEMS['s3a'][0].replace('.', '/')}.class"


def settings(output, checkpoint, **more):
    return ConsumerConfig.load(
        None,
        bootstrap_servers="127.0.0.1:1",
        registry_url="http://127.0.0.1:1",
        prefix=more.pop("prefix", "bank"),
        output=str(output),
        checkpoint=str(checkpoint),
        **more,
    )


def refused(config, check=require_locations):
    with pytest.raises(ConfigError) as caught:
        check(config)
    assert caught.value.hint
    assert caught.value.exit_code == 2
    return str(caught.value)


@pytest.fixture(autouse=True)
def machine(monkeypatch, tmp_path):
    """A machine on which nothing but the settings says where folders and jars are."""
    for name in ELSEWHERE:
        monkeypatch.delenv(name, raising=False)
    pyspark = tmp_path / "pyspark"
    (pyspark / "jars").mkdir(parents=True)
    monkeypatch.setattr(locations, "_pyspark", lambda: [pyspark])
    return pyspark


def store(folder: Path, name: str, content: object):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


def begin(checkpoint: Path, *, output: Path, query_id="first", prefix="bank"):
    content = {"query_id": query_id, "prefix": prefix, "output": f"file:{output}"}
    store(checkpoint / "gate", QUERY_FILE, content)


def release(output: Path, *, query_id="first"):
    manifest = Manifest(0, query_id, 0, 0, 10, 1, {})
    store(output, manifest_name(0), manifest.content())


def test_a_folder_that_cannot_be_written_to_is_named(tmp_path):
    (tmp_path / "a file").touch()
    good = tmp_path / "good"
    for bad in (f"{tmp_path}/a file/out", f"{tmp_path}/a file", "/proc/out", "/dev/null/out"):
        for address in (bad, f"file://{bad}", f"file:{bad}"):
            text = refused(settings(address, good))
            assert text.startswith("output: the folder cannot be written to")
            assert bad in text
            assert "checkpoint: the folder" in refused(settings(good, address))
    (tmp_path / "a file").unlink()
    require_locations(settings(f"{tmp_path}/a file/out", good))


def test_folders_that_are_missing_may_be_and_nothing_is_left(tmp_path):
    output, checkpoint = tmp_path / "a/b", tmp_path / "c"
    require_locations(settings(output, f"file://{checkpoint}"))
    assert not (tmp_path / "a").exists()
    assert not checkpoint.exists()


def test_a_checkpoint_of_another_stream_or_output_is_refused(tmp_path):
    output, checkpoint = tmp_path / "out", tmp_path / "check"
    begin(checkpoint, output=output)
    for same in (output, f"{output}/", f"{tmp_path}/x/../out", f"file://{output}"):
        require_locations(settings(same, checkpoint))
    assert "belongs to another output" in refused(settings(tmp_path / "other", checkpoint))
    assert "belongs to another prefix" in refused(settings(output, checkpoint, prefix="shop"))
    template = {"topic_template": "{prefix}-{table}"}
    assert "belongs to another topic_template" in refused(settings(output, checkpoint, **template))


def test_an_output_of_another_query_is_refused(tmp_path):
    output, checkpoint, new = tmp_path / "out", tmp_path / "check", tmp_path / "new"
    begin(checkpoint, output=output)
    release(output)
    require_locations(settings(output, checkpoint))
    text = refused(settings(output, new))
    assert "releases of another query" in text
    assert "tidegate-consumer adopt" in text
    require_locations(settings(tmp_path / "empty", new))
    begin(new, output=output, query_id="second")
    assert "found='first', expected='second'" in refused(settings(output, new))


def test_what_another_file_system_holds_is_left_to_spark(tmp_path, monkeypatch):
    begin(tmp_path / "check", output=tmp_path / "out")
    hdfs = "hdfs://name/out"
    require_locations(settings(hdfs, tmp_path / "check"))  # Spark says how it is written in full
    for name, value in ELSEWHERE.items():
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            require_locations(settings(S3, tmp_path / "check"))  # its jar may be named there
            require_locations(settings("/proc/out", "/proc/check"))  # may be HDFS's
            assert "cannot be written to" in refused(settings("file:/proc/out", "/proc/check"))


def test_s3_without_its_jar_is_refused_with_what_to_add(tmp_path, machine, monkeypatch):
    jar = tmp_path / "some.jar"
    with ZipFile(jar, "w") as content:
        content.writestr("org/other.class", "")
    lacking = ({}, {"jars": str(jar)}, {"sinks": "iceberg_changelog"})
    for more in lacking:
        for output, checkpoint in ((S3, tmp_path), (tmp_path, S3)):
            text = refused(settings(output, checkpoint, **more))
            assert "no file system for the scheme" in text
            assert "org.apache.hadoop:hadoop-aws:3.4.1" in text
    assert "Write s3a:// in place of s3://" in refused(settings("s3://lake/x", tmp_path))
    with ZipFile(jar, "a") as content:
        content.writestr(S3A_ENTRY, "")
    having = (
        {"jars": str(jar)},
        {"jars": "https://host/any.jar"},
        {"packages": ""},
        {"packages": f"{SPARK_PACKAGES},org.apache.hadoop:hadoop-aws:3.4.1"},
        {"packages": f"{SPARK_PACKAGES},org.apache.spark:spark-hadoop-cloud_2.13:4.0.0"},
    )
    for more in having:
        require_locations(settings(S3, tmp_path, **more))
    for name, content in ((JAR, ""), ("cloud-all-1.0.jar", S3A_ENTRY), ("cut-off.jar", None)):
        refused(settings(S3, tmp_path))
        installed = machine / "jars" / name
        if content is None:
            installed.write_bytes(b"PK")  # what cannot be read may have it
        else:
            with ZipFile(installed, "w") as jar:
                jar.writestr(content or "other", "")
        if name == JAR:  # the class counts, not the name of its jar
            refused(settings(S3, tmp_path))
        else:
            require_locations(settings(S3, tmp_path))
        installed.unlink()
    (machine / "conf").mkdir()  # its spark-defaults.conf may name jars
    require_locations(settings(S3, tmp_path))


@pytest.mark.parametrize(
    ("address", "advice"),
    [
        ("gs://lake/orders", "gcs-connector-4.0.0-shaded.jar"),
        ("abfss://lake@account.dfs.core.windows.net/orders", "org.apache.hadoop:hadoop-azure"),
    ],
)
def test_each_store_without_its_jar_is_refused_with_what_to_add(tmp_path, address, advice):
    text = refused(settings(address, tmp_path))
    assert "no file system for the scheme" in text
    assert advice in text
    for kind in FILE_SYSTEMS[address.partition(":")[0]]:
        jar = tmp_path / "some.jar"
        with ZipFile(jar, "w") as content:
            content.writestr(f"{kind.replace('.', '/')}.class", "")
        require_locations(settings(address, tmp_path, jars=str(jar)))


def test_what_is_audited_has_a_release(tmp_path):
    config = settings(tmp_path / "out", tmp_path / "check")
    assert "no release manifest" in refused(config, require_release)
    assert not (tmp_path / "out").exists()
    release(tmp_path / "out")
    require_release(config)
    assert "no file system" in refused(settings(S3, tmp_path), require_release)
