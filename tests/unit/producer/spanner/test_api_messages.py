"""A worker loads Spanner's messages alone; a program that wants the client gets it whole."""

from __future__ import annotations

import subprocess
import sys

import pytest

WORKER = """
import sys
import tidegate.producer.cli
import tidegate.producer.commands.run
import tidegate.producer.commands.spanner_source
from tidegate.producer.spanner.api_messages import ExecuteSqlRequest
assert ExecuteSqlRequest.pb()(sql="SELECT 1").SerializeToString()
loaded = [name for name in sys.modules if name.startswith("google.cloud.spanner")]
assert loaded, loaded
assert all(name.startswith("google.cloud.spanner_v1.types.") for name in loaded), loaded
"""
CLIENT_AFTERWARDS = """
from tidegate.producer.spanner.api_messages import ExecuteSqlRequest, TypeCode
import google.cloud.spanner_v1
from google.cloud import spanner
from google.cloud.spanner_v1 import KeySet, types
from google.cloud.spanner_v1.types import ExecuteSqlRequest as theirs
assert google.cloud.spanner_v1.types is types
assert (theirs, types.TypeCode) == (ExecuteSqlRequest, TypeCode)
assert KeySet(all_=True)._to_pb().all_
assert spanner.Client
"""
CLIENT_FIRST = """
from google.cloud import spanner
from google.cloud.spanner_v1.types import ExecuteSqlRequest as theirs
from tidegate.producer.spanner.api_messages import ExecuteSqlRequest
assert theirs is ExecuteSqlRequest
import google.cloud.spanner_v1
assert google.cloud.spanner_v1.Client is spanner.Client
"""


@pytest.mark.parametrize("program", [WORKER, CLIENT_AFTERWARDS, CLIENT_FIRST])
def test_in_a_process_of_its_own(program):
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
