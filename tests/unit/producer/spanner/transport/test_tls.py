"""A deployment of one's own: its authority, and the certificate of its user, for all calls."""

import asyncio
import subprocess
from pathlib import Path
from types import SimpleNamespace

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from google.auth.transport import mtls
from google.cloud.spanner_v1.types import ExecuteSqlRequest

from tests.certificates import Issued
from tests.unit.producer.spanner.conftest import FakeSpanner, heartbeat_row, message
from tidegate.producer.errors import QueryInterrupted
from tidegate.producer.spanner.channel import SpannerChannels, rpc_error
from tidegate.producer.spanner.checks import setup_error
from tidegate.producer.spanner.transport.authorization import Authorization
from tidegate.producer.spanner.transport.call import ReadAhead
from tidegate.producer.spanner.transport.connection import Connection
from tidegate.producer.spanner.transport.endpoint import Endpoint, Tls
from tidegate.producer.spanner.transport.grpc_connection import GrpcConnection
from tidegate.schemas.errors import ConfigError, UnreachableError


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("deployment")
    authority = Issued(folder / "ca.pem", "authority", is_authority=True)
    Issued(folder / "server.pem", "server", issuer=authority)
    Issued(folder / "admin.pem", "admin", issuer=authority)
    Issued(folder / "locked.pem", "locked", issuer=authority, password=b"hush")
    Issued(folder / "other.pem", "other")
    return SimpleNamespace(**{one.stem: str(one) for one in folder.iterdir()}, folder=folder)


@pytest.fixture(autouse=True)
def no_accounts(monkeypatch):
    """Google's credentials are not looked for, and no proxy is between."""

    def found(*_):
        raise AssertionError("a deployment of one's own knows no account of Google's")

    monkeypatch.setattr(Authorization, "_default", found)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@pytest.fixture
def deployment(files):
    """A server that takes only clients with a certificate of its authority, and their names."""
    both, names = Path(files.server).read_bytes(), []
    credentials = grpc.ssl_server_credentials(
        [(both, both)], Path(files.ca).read_bytes(), require_client_auth=True
    )
    server = FakeSpanner(credentials)

    def note(_request, context):
        names.extend(context.auth_context()["x509_common_name"])

    def stream(request, context):
        note(request, context)
        yield message(heartbeat_row())

    server.on_session, server.on_stream, server.names = note, stream, names
    yield server
    server.stop()


def channels_to(deployment, tls, transport="h2"):
    return SpannerChannels(
        database="projects/default/instances/default/databases/d",
        endpoint=deployment.address,
        tls=tls,
        query_transport=transport,
    )


def query(channels):
    """Run one call of each kind, each on its own connection."""
    channels.execute_sql(ExecuteSqlRequest.pb()(sql="SELECT 1"), timeout_s=20)

    async def streamed():
        session = await channels.stream_session()
        stream = channels.stream("ExecuteStreamingSql", ExecuteSqlRequest.pb()(), session)
        try:
            return await stream.next_size()
        finally:
            stream.close()

    return asyncio.run(streamed())


@pytest.mark.parametrize("transport", ["h2", "grpc"])
def test_both_kinds_of_calls_show_the_certificate_and_no_account(deployment, files, transport):
    channels = channels_to(deployment, Tls(files.ca, files.admin, files.admin), transport)
    try:
        assert query(channels) > 0
    finally:
        channels.close()
    assert deployment.names == [b"admin", b"admin"]
    assert not any("authorization" in metadata for metadata in deployment.metadata)


@pytest.mark.parametrize("transport", ["h2", "grpc"])
def test_a_certificate_that_googles_client_finds_is_shown_by_queries_too(
    deployment, files, monkeypatch, transport
):
    both = Path(files.admin).read_bytes()
    monkeypatch.setenv("GOOGLE_API_USE_CLIENT_CERTIFICATE", "true")
    monkeypatch.setattr(mtls, "has_default_client_cert_source", lambda **_: True)
    monkeypatch.setattr(mtls, "default_client_cert_source", lambda: lambda: (both, both))
    channels = channels_to(deployment, Tls(files.ca), transport)
    try:
        assert query(channels) > 0
    finally:
        channels.close()
    assert deployment.names == [b"admin", b"admin"]


def test_an_account_that_is_named_is_used_with_an_own_authority(files, monkeypatch):
    async def headers(_self):
        return [("authorization", "Bearer token")]

    monkeypatch.setattr(Authorization, "headers", headers)
    for named, sent in (("key.json", [("authorization", "Bearer token")]), ("", [])):
        channels = SpannerChannels(database="d", tls=Tls(files.ca), credentials_file=named)
        assert asyncio.run(channels._metadata("s"))[3:] == sent


@pytest.mark.parametrize(
    ("names", "setting", "kind"),
    [
        (["ca"], "spanner_client_cert", UnreachableError),
        (["ca", "other", "other"], "spanner_client_cert", UnreachableError),
        (["other", "admin", "admin"], "spanner_ca_file", ConfigError),
    ],
    ids=["no certificate", "one of another authority", "a server of another authority"],
)
def test_a_side_that_is_not_trusted_ends_the_call(deployment, files, names, setting, kind):
    channels = channels_to(deployment, Tls(*(getattr(files, name) for name in names)))
    try:
        with pytest.raises(QueryInterrupted) as caught:
            channels.execute_sql(ExecuteSqlRequest.pb()(sql="SELECT 1"), timeout_s=20)
    finally:
        channels.close()
    assert deployment.names == []
    found = setup_error(caught.value)
    assert isinstance(found, kind)
    assert setting in found.hint


@pytest.mark.parametrize(
    "connect", [lambda endpoint: Connection(endpoint, ReadAhead()), GrpcConnection]
)
def test_streaming_calls_name_a_server_that_is_not_trusted(deployment, files, connect):
    async def ask():
        connection = connect(Endpoint(deployment.address, is_secure=True, tls=Tls(files.other)))
        try:
            call = await connection.call("/any", b"", ())
            await call.next_size()
        finally:
            connection.close()

    with pytest.raises(grpc.RpcError) as caught:
        asyncio.run(ask())
    error = rpc_error(caught.value, action="query Spanner")
    assert "spanner_ca_file" in setup_error(error).hint


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "SSL_CERT_DIR", ""])
@pytest.mark.parametrize("transport", ["h2", "grpc"])
def test_unary_calls_and_queries_trust_what_the_host_trusts(
    deployment, files, monkeypatch, variable, transport
):
    authority = Path(files.ca)
    monkeypatch.delenv("GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", raising=False)
    if variable == "SSL_CERT_DIR":
        folder = files.folder / "authorities"
        folder.mkdir(exist_ok=True)
        subject = x509.load_pem_x509_certificate(authority.read_bytes())
        (folder / "ca.pem").write_bytes(subject.public_bytes(serialization.Encoding.PEM))
        subprocess.run(["openssl", "rehash", str(folder)], check=True)
        monkeypatch.setenv(variable, str(folder))
    elif variable:
        monkeypatch.setenv(variable, str(authority))
    tls = Tls(client_cert=files.admin, client_key=files.admin)
    channels = channels_to(deployment, tls, transport)
    try:
        if variable:
            assert query(channels) > 0
        else:
            with pytest.raises(QueryInterrupted, match=r"(?i)certificate.verify.failed"):
                query(channels)
    finally:
        channels.close()


@pytest.mark.parametrize(
    ("ca", "cert", "key", "setting"),
    [
        ("missing", "", "", "spanner_ca_file"), ("text", "", "", "spanner_ca_file"),
        ("ca", "missing", "admin", "spanner_client_cert"),
        ("ca", "admin", "missing", "spanner_client_cert"),
        ("ca", "admin", "other", "spanner_client_cert"),
        ("ca", "text", "text", "spanner_client_cert"),
        ("ca", "locked", "locked", "spanner_client_cert"),
    ],
)  # fmt: skip
def test_files_that_cannot_be_used_are_named(files, ca, cert, key, setting):
    (files.folder / "text").write_text("no certificate")
    paths = [str(getattr(files, one, files.folder / one)) if one else "" for one in (ca, cert, key)]
    tls = Tls(*paths)
    for use in (tls.credentials, lambda: Endpoint("h:1", is_secure=True, tls=tls)):
        with pytest.raises(ConfigError, match=rf"^{setting}: ") as caught:
            use()
        assert caught.value.hint
        assert "hush" not in str(caught.value)
