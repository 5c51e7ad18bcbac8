"""A deployment of one's own: its authority, and the certificate of its user, for all calls."""

import asyncio
from pathlib import Path
from types import SimpleNamespace

import grpc
import pytest
from google.cloud.spanner_v1.types import ExecuteSqlRequest

from tests.unit.producer.spanner.conftest import FakeSpanner, Issued, heartbeat_row, message
from tidegate.producer.errors import QueryInterrupted
from tidegate.producer.spanner.authorization import Authorization
from tidegate.producer.spanner.call import CallError, ReadAhead
from tidegate.producer.spanner.channel import SpannerChannels, rpc_error
from tidegate.producer.spanner.connection import Connection
from tidegate.producer.spanner.endpoint import Endpoint
from tidegate.producer.spanner.tls import Tls
from tidegate.producer.spanner.validate import setup_error
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


def channels_to(deployment, tls):
    return SpannerChannels(
        database="projects/default/instances/default/databases/d",
        endpoint=deployment.address,
        tls=tls,
    )


def query(channels):
    """Run one call of each kind, on both kinds of connection."""
    channels.execute_sql(ExecuteSqlRequest.pb()(sql="SELECT 1"), timeout_s=20)

    async def streamed():
        session = await channels.stream_session()
        stream = channels.stream("ExecuteStreamingSql", ExecuteSqlRequest.pb()(), session)
        try:
            return await stream.next_size()
        finally:
            stream.close()

    return asyncio.run(streamed())


def test_both_kinds_of_calls_show_the_certificate_and_no_account(deployment, files):
    channels = channels_to(deployment, Tls(files.ca, files.admin, files.admin))
    try:
        assert query(channels) > 0
    finally:
        channels.close()
    assert deployment.names == [b"admin", b"admin"]
    assert not any("authorization" in metadata for metadata in deployment.metadata)


def test_an_account_that_is_named_is_used_with_an_own_authority(files, monkeypatch):
    async def headers(_self):
        return [("authorization", "Bearer token")]

    monkeypatch.setattr(Authorization, "headers", headers)
    for named, sent in (("key.json", [("authorization", "Bearer token")]), ("", [])):
        channels = SpannerChannels(database="d", tls=Tls(files.ca), credentials_file=named)
        assert list(asyncio.run(channels._signed(()))) == sent


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


def test_streaming_calls_name_a_server_that_is_not_trusted(deployment, files):
    async def connect():
        endpoint = Endpoint(deployment.address, is_secure=True, tls=Tls(files.other))
        await Connection(endpoint, ReadAhead()).call("/any", b"", ())

    with pytest.raises(CallError) as caught:
        asyncio.run(connect())
    error = rpc_error(caught.value, what="query Spanner")
    assert "spanner_ca_file" in setup_error(error).hint


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
