"""Where an output is for delta-rs: on this machine, or in S3 with the access of Spark's session.

delta-rs has an S3 client of its own.  It gets what the session's has (endpoint, region,
credentials, encryption by the server), and is not used where the session has a setting that it
could not follow: then Spark writes everything.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tidegate.spark_consumer.checkpoint.s3_access import S3Access

_DECODED_BY_DELTA_RS = frozenset("%#?")

_PLAIN_KEY = re.compile(r"[A-Za-z0-9_.=/-]*")
"""Keys that are the same in an address and in S3."""

_AMAZON = re.compile(r"(https?://)?s3\.([a-z0-9-]+\.)?amazonaws\.com(\.cn)?/?")
"""Amazon's usual endpoints, which delta-rs finds by the region."""

_NOT_FOLLOWED = (
    "accesspoint.arn",
    "access.grants.enabled",
    "acl.default",
    "create.storage.class",
    "endpoint.fips",
    "proxy.host",
    "requester.pays.enabled",
)
_UNSET = ("", "false")

_ENCRYPTIONS = {"": None, "AES256": "AES256", "SSE-KMS": "aws:kms"}

_OF_THE_ENVIRONMENT = {
    "AWS_SESSION_TOKEN": "AWS_SESSION_TOKEN",
    "AWS_ENDPOINT_URL": "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3": "AWS_ENDPOINT_URL",
}
"""Variables that delta-rs takes where an option is not given, and the option."""


class OnlySpark(Exception):  # noqa: N818 - an answer, not an error
    """Spark alone reaches the output; the text says why."""


def _nothing() -> Mapping[str, str]:
    return {}


@dataclass(frozen=True, slots=True)
class DirectPlace:
    """The folder of an output, as delta-rs takes it."""

    address: str
    options: Callable[[], Mapping[str, str]] = _nothing
    """What delta-rs needs to reach it; asked for each table, since credentials expire."""


def find_place(output: str, s3: S3Access | None = None) -> DirectPlace:
    """Return the place of an output, an absolute path or a URI; raises OnlySpark.

    `s3` is how Spark's session reaches an output of the scheme `s3a`.
    """
    scheme, colon, rest = output.partition(":")
    if not colon or "/" in scheme:
        scheme, rest = "file", output
    path = f"/{rest.lstrip('/')}"
    if scheme == "file" and not _DECODED_BY_DELTA_RS & set(path):
        return DirectPlace(path)
    if scheme == "s3a" and s3 is not None and _PLAIN_KEY.fullmatch(path):
        return DirectPlace(f"s3:/{path}", _s3_options(s3))
    raise OnlySpark("output is not a plain path of this machine or of S3")


def _s3_options(s3: S3Access) -> Callable[[], Mapping[str, str]]:
    for name in _NOT_FOLLOWED:
        if s3.setting(name).lower() not in _UNSET:
            raise OnlySpark(f"fs.s3a.{name} is set")
    fixed = {**_endpoint(s3), **_encryption(s3), "AWS_CONDITIONAL_PUT": "etag"}

    def options() -> Mapping[str, str]:
        return {**fixed, **_credentials(s3)}

    found = options()
    for variable, option in _OF_THE_ENVIRONMENT.items():
        if option not in found and os.environ.get(variable):
            raise OnlySpark(
                f"{variable} is in the environment, and Spark's session does not use it"
            )
    return options


def _endpoint(s3: S3Access) -> dict[str, str]:
    endpoint, region = s3.setting("endpoint"), s3.setting("endpoint.region")
    if not endpoint or _AMAZON.fullmatch(endpoint):
        return {"AWS_REGION": region or s3.region()}
    is_plain = s3.setting("connection.ssl.enabled").lower() == "false"
    scheme, _, host = endpoint.rpartition("://")
    scheme = scheme or ("http" if is_plain else "https")
    has_path_style = s3.setting("path.style.access").lower() == "true"
    # A client that names the bucket in the host takes the endpoint with it.
    host = host.rstrip("/") if has_path_style else f"{s3.bucket}.{host.rstrip('/')}"
    return {
        "AWS_REGION": region or "us-east-1",
        "AWS_ENDPOINT_URL": f"{scheme}://{host}",
        "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": str(not has_path_style).lower(),
        "AWS_ALLOW_HTTP": str(scheme == "http").lower(),
    }


def _encryption(s3: S3Access) -> dict[str, str]:
    # Hadoop reads the older names where the newer ones are not set.
    name = s3.setting("encryption.algorithm") or s3.setting("server-side-encryption-algorithm")
    key = s3.setting("encryption.key") or s3.setting("server-side-encryption.key")
    if name not in _ENCRYPTIONS:
        raise OnlySpark(f"fs.s3a.encryption.algorithm is {name}")
    algorithm = _ENCRYPTIONS[name]
    if algorithm is None:
        return {}
    options = {"AWS_SERVER_SIDE_ENCRYPTION": algorithm}
    return options if not key else options | {"AWS_SSE_KMS_KEY_ID": key}


def _credentials(s3: S3Access) -> dict[str, str]:
    found = s3.credentials()
    if found is None:
        return {"AWS_SKIP_SIGNATURE": "true"}
    pair = {"AWS_ACCESS_KEY_ID": found.access_key, "AWS_SECRET_ACCESS_KEY": found.secret_key}
    token = found.session_token
    return pair if token is None else pair | {"AWS_SESSION_TOKEN": token}
