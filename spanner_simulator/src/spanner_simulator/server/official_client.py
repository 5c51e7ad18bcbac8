"""Google's own Python client, connected to a simulator without changing the environment.

The client's library is imported only when it is used.
"""

from __future__ import annotations

from typing import Any


def connect(address: str, *, project: str) -> Any:
    """A `google.cloud.spanner.Client` of the simulator at an address, without credentials."""
    from google.auth.credentials import AnonymousCredentials  # noqa: PLC0415  # as the module says
    from google.cloud import spanner  # noqa: PLC0415  # as the module says

    return spanner.Client(
        project=project,
        credentials=AnonymousCredentials(),  # type: ignore[no-untyped-call]  # has no types
        client_options={"api_endpoint": address},
        disable_builtin_metrics=True,
    )
