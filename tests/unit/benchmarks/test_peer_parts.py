"""Debezium's connector is fetched once, and a failed attempt leaves no parts."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.peers import parts
from tidegate.local_stack.errors import FetchError
from tidegate.local_stack.parts import ivy
from tidegate.local_stack.parts.java import Java

IVY = """\
#!/bin/sh
echo ran >> {log}
while [ "$1" != "-retrieve" ]; do shift; done
root="${{2%%/\\[conf\\]*}}"
mkdir -p "$root/connect/jars" "$root/debezium/jars"
touch "$root/connect/jars/connect-runtime-4.3.0.jar"
touch "$root/debezium/jars/debezium-connector-spanner-3.6.1.Final.jar"
touch "$root/debezium/jars/debezium-connector-common-3.6.0.Final.jar"
echo "UNRESOLVED DEPENDENCY: nothing"
exit {code}
"""


@pytest.fixture
def java_of(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(ivy, "find_ivy_jar", lambda: Path("ivy.jar"))

    def write(code):
        program = tmp_path / f"java-{code}"
        program.write_text(IVY.format(code=code, log=tmp_path / "log"))
        program.chmod(0o755)
        return Java(program, 17)

    return write


def test_the_second_call_fetches_nothing(java_of, tmp_path):
    found = [parts.fetch_peer_parts(java_of(0), report=print) for _ in range(2)]

    assert found[0] == found[1]
    assert (tmp_path / "log").read_text() == "ran\n"
    assert found[0].version("debezium-connector-spanner") == "3.6.1.Final"
    assert found[0].connect_class_path.endswith("/connect/jars/*")
    plugins = [Path(one) for one in found[0].plugin_path.split(",")]
    assert [len(list(one.glob("jars/*.jar"))) for one in plugins] == [2, 0]
    with pytest.raises(SystemExit, match="connect-json was not fetched"):
        found[0].version("connect-json")


def test_after_a_failure_the_next_call_fetches_again(java_of):
    with pytest.raises(FetchError, match="UNRESOLVED DEPENDENCY: nothing"):
        parts.fetch_peer_parts(java_of(1), report=print)

    assert parts.fetch_peer_parts(java_of(0), report=print).root.exists()
