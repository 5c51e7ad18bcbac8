"""Java's options of a Spark session that lives for minutes, as Java itself understands them."""

from __future__ import annotations

import re
import shlex
import subprocess

import pytest

from tidegate.local_stack.parts.java import find_java
from tidegate.local_stack.parts.programs import quick_start

pytestmark = pytest.mark.integration


def code_cache(*options: str) -> int:
    command = [str(find_java().program), *options, "-XX:+PrintFlagsFinal", "-version"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    found = re.search(r"ReservedCodeCacheSize\s*=\s*(\d+)", done.stdout)
    assert found is not None
    return int(found[1])


def test_there_is_as_much_room_for_compiled_code_as_with_both_compilers():
    assert code_cache("-XX:TieredStopAtLevel=1") < code_cache()

    assert code_cache(*shlex.split(quick_start())) >= code_cache()
