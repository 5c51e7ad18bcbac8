"""What the checks share: the databases, a JSON line for each check, and the control port."""

from __future__ import annotations

import json
import os
import sys
import traceback
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from google.cloud import spanner

Check = Callable[["Databases"], Any]


@dataclass
class Databases:
    """The client, and what the first checks create."""

    client: Any
    instance: Any = None
    google: Any = None
    postgres: Any = None


def run(checks: list[Check]) -> None:
    """Walk the checks in order; a check that fails ends none of the others."""
    databases = Databases(spanner.Client(project="conformance"))
    for check in checks:
        line: dict[str, Any] = {"check": check.__name__, "ok": True, "detail": ""}
        try:
            line["detail"] = str(check(databases) or "")
        except Exception as error:  # noqa: BLE001  # a failure is what the line is for
            where = traceback.extract_tb(error.__traceback__)
            own = [frame for frame in where if Path(frame.filename).parent == Path(__file__).parent]
            place = f"{Path(own[-1].filename).name}:{own[-1].lineno}"
            line.update(ok=False, detail=f"{type(error).__name__} at {place}: {error}"[:600])
        print(json.dumps(line), flush=True)
    # The client's threads sleep for minutes; nothing is left to wait for.
    sys.stdout.flush()
    os._exit(0)


def equal(expected: Any, found: Any) -> None:
    """Raises AssertionError naming both."""
    if expected != found:
        raise AssertionError(f"expected {expected!r}, found {found!r}")


def fails_with(kind: type[Exception], act: Callable[[], Any]) -> str:
    """The message of the error that `act` must raise."""
    try:
        act()
    except kind as error:
        return str(error)
    raise AssertionError(f"{kind.__name__} was due, and nothing was raised")


def statements(name: str) -> list[str]:
    """The DDL of one of the shared schemas."""
    text = (Path(os.environ["CONFORMANCE_SCHEMA"]) / name).read_text()
    return [one.strip() for one in text.split(";") if one.strip()]


def control(verb: str, **arguments: Any) -> Any:
    """The answer to one verb of the simulator's control port."""
    address = os.environ["CONFORMANCE_CONTROL"]
    request = urllib.request.Request(
        f"http://{address}/{verb}", json.dumps(arguments).encode(), method="POST"
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)
