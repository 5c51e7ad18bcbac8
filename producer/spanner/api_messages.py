"""The messages of Spanner's API, without the client that they come with.

Importing `google.cloud.spanner_v1` runs the whole client: administration, monitoring, telemetry,
800 modules.  That is one to three seconds of CPU time and 60 MiB in each worker and each command,
and nothing of it is used: queries go over `connection.py`.  The messages are a package inside of it
that needs none of the rest.

A program that imports the client as well gets it whole, with these same messages.
"""

from __future__ import annotations

import importlib
import sys
from importlib.util import find_spec, module_from_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from google.cloud.spanner_v1 import types


_CLIENT = "google.cloud.spanner_v1"
_MESSAGES = f"{_CLIENT}.types"


def _load() -> Any:
    """Import the package of messages, below a client that is not run.

    Both are forgotten again, so that who imports the client runs it; its messages' modules stay.
    """
    if _CLIENT in sys.modules:
        return importlib.import_module(_MESSAGES)
    spec = find_spec(_CLIENT)
    if spec is None:
        raise ModuleNotFoundError(f"No module named {_CLIENT!r}", name=_CLIENT)
    sys.modules[_CLIENT] = module_from_spec(spec)
    try:
        return importlib.import_module(_MESSAGES)
    finally:
        del sys.modules[_CLIENT]
        sys.modules.pop(_MESSAGES, None)


if not TYPE_CHECKING:
    types = _load()

ChangeStreamRecord = types.ChangeStreamRecord
CreateSessionRequest = types.CreateSessionRequest
DirectedReadOptions = types.DirectedReadOptions
ExecuteSqlRequest = types.ExecuteSqlRequest
PartitionReadRequest = types.PartitionReadRequest
PartitionResponse = types.PartitionResponse
ReadRequest = types.ReadRequest
RequestOptions = types.RequestOptions
ResultSet = types.ResultSet
ResultSetMetadata = types.ResultSetMetadata
Session = types.Session
Type = types.Type
TypeCode = types.TypeCode
