"""An output's address for delta-rs: on this machine, or in a store that Spark's session reaches.

delta-rs has its own clients for S3 and Google Cloud Storage.  They get the session's settings
(endpoint, region, credentials, encryption by the server), and are not used if the session has a
setting that they could not follow: then Spark writes everything.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tidegate.spark_consumer.checkpoint.store_access import GcsAccess, S3Access, StoreAccess

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

_S3_ENVIRONMENT = {
    "AWS_SESSION_TOKEN": "AWS_SESSION_TOKEN",
    "AWS_ENDPOINT_URL": "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3": "AWS_ENDPOINT_URL",
}
"""Variables that delta-rs takes where an option is not given, and the option."""

_GCS = "https://storage.googleapis.com"

_GCS_NOT_FOLLOWED = (
    "auth.impersonation.service.account",
    "encryption.algorithm",
    "proxy.address",
    "token.server.url",
)
_NOT_CHARGED = ("", "DISABLED")

_GCS_ENVIRONMENT = (
    "GOOGLE_BASE_URL",
    "GOOGLE_SERVICE_ACCOUNT",
    "GOOGLE_SERVICE_ACCOUNT_KEY",
    "GOOGLE_SERVICE_ACCOUNT_PATH",
    "GOOGLE_SKIP_SIGNATURE",
    "SERVICE_ACCOUNT",
)
"""Variables that delta-rs takes, and Google's connector does not."""

_DEFAULT_CREDENTIALS = "GOOGLE_APPLICATION_CREDENTIALS"
_UNDERSTOOD = ("authorized_user", "service_account")
"""Kinds of files with default credentials that delta-rs can use."""

_NO_KEY = {"disable_oauth": True, "client_email": "", "private_key": "", "private_key_id": ""}
"""A key with which delta-rs requests no token, for a server without logins."""


class OnlySpark(Exception):  # noqa: N818 - an answer, not an error
    """Spark alone reaches the output; the text says why."""


def _nothing() -> Mapping[str, str]:
    return {}


@dataclass(frozen=True, slots=True)
class DirectPlace:
    """The folder of an output, as delta-rs takes it."""

    address: str
    options: Callable[[], Mapping[str, str]] = _nothing
    """Options of delta-rs to reach it; read for each table, since credentials expire."""


def find_place(output: str, access: StoreAccess | None = None) -> DirectPlace:
    """Return the place of an output, an absolute path or a URI; raises OnlySpark.

    `access` is how Spark's session reaches an output in an object store.
    """
    scheme, colon, rest = output.partition(":")
    if not colon or "/" in scheme:
        scheme, rest = "file", output
    path = f"/{rest.lstrip('/')}"
    if scheme == "file" and not _DECODED_BY_DELTA_RS & set(path):
        return DirectPlace(path)
    if _PLAIN_KEY.fullmatch(path):
        if isinstance(access, S3Access) and scheme == "s3a":
            return DirectPlace(f"s3:/{path}", _s3_options(access))
        if isinstance(access, GcsAccess) and scheme == "gs":
            return DirectPlace(f"gs:/{path}", _gcs_options(access))
    raise OnlySpark("output is not a plain path of this machine, of s3a:// or of gs://")


def _s3_options(s3: S3Access) -> Callable[[], Mapping[str, str]]:
    for name in _NOT_FOLLOWED:
        if s3.setting(name).lower() not in _UNSET:
            raise OnlySpark(f"fs.s3a.{name} is set")
    fixed = {**_endpoint(s3), **_encryption(s3), "AWS_CONDITIONAL_PUT": "etag"}

    def options() -> Mapping[str, str]:
        return {**fixed, **_credentials(s3)}

    resolved = options()
    for variable, option in _S3_ENVIRONMENT.items():
        if option not in resolved and os.environ.get(variable):
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
    credentials = s3.credentials()
    if credentials is None:
        return {"AWS_SKIP_SIGNATURE": "true"}
    pair = {
        "AWS_ACCESS_KEY_ID": credentials.access_key,
        "AWS_SECRET_ACCESS_KEY": credentials.secret_key,
    }
    token = credentials.session_token
    return pair if token is None else pair | {"AWS_SESSION_TOKEN": token}


def _gcs_options(gcs: GcsAccess) -> Callable[[], Mapping[str, str]]:
    for name in _GCS_NOT_FOLLOWED:
        if gcs.setting(name) or gcs.begins(f"{name}.for."):
            raise OnlySpark(f"fs.gs.{name} is set")
    if gcs.setting("requester.pays.mode").upper() not in _NOT_CHARGED:
        raise OnlySpark("fs.gs.requester.pays.mode is set")
    for variable in _GCS_ENVIRONMENT:
        if os.environ.get(variable):
            raise OnlySpark(
                f"{variable} is in the environment, and Spark's session does not use it"
            )
    endpoint = gcs.setting("storage.root.url").rstrip("/")
    credentials = _gcs_credentials(gcs)
    if endpoint not in ("", _GCS):
        credentials["GOOGLE_BASE_URL"] = endpoint
    return lambda: credentials


def _gcs_credentials(gcs: GcsAccess) -> dict[str, str]:
    kind = gcs.setting("auth.type").upper() or "COMPUTE_ENGINE"
    default = _default_credentials()
    if kind == "UNAUTHENTICATED":
        return {"GOOGLE_SERVICE_ACCOUNT_KEY": json.dumps(_NO_KEY)}
    if kind == "SERVICE_ACCOUNT_JSON_KEYFILE":
        return {"GOOGLE_SERVICE_ACCOUNT": gcs.setting("auth.service.account.json.keyfile")}
    if kind == "COMPUTE_ENGINE" and default is not None:
        raise OnlySpark(f"fs.gs.auth.type is {kind}, and delta-rs would use {default}")
    if kind == "COMPUTE_ENGINE" or (kind == "APPLICATION_DEFAULT" and default is None):
        return {}  # both ask the metadata server
    if kind == "APPLICATION_DEFAULT":
        return {_DEFAULT_CREDENTIALS: _understood(Path(str(default)))}
    raise OnlySpark(f"fs.gs.auth.type is {kind}")


def _default_credentials() -> Path | None:
    """Return the file with the credentials of this machine's user or program, if there is one."""
    if named := os.environ.get(_DEFAULT_CREDENTIALS):
        return Path(named)
    folder = os.environ.get("CLOUDSDK_CONFIG")
    usual = Path(folder) if folder else Path.home() / ".config" / "gcloud"
    path = usual / "application_default_credentials.json"
    return path if path.exists() else None


def _understood(file: Path) -> str:
    try:
        kind = json.loads(file.read_bytes()).get("type")
    except (OSError, ValueError, AttributeError) as error:
        raise OnlySpark(f"{file} cannot be read") from error
    if kind not in _UNDERSTOOD:
        raise OnlySpark(f"delta-rs has no use for the credentials of {file}, which are {kind}")
    return str(file)
