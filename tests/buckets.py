"""Servers that speak S3 and GCS, for tests of what reads files from buckets.

moto's server and gcp-storage-emulator, in threads of the test's process, on ports of the loopback
that the system chooses.  `denying` makes them refuse as the services do: moto checks keys and
policies itself; the emulator has no rights, so its server answers with the error of GCS's JSON API.
"""

from __future__ import annotations

import json
import threading
import urllib.request
from contextlib import contextmanager
from functools import partial
from http.server import ThreadingHTTPServer
from urllib.parse import quote
from uuid import uuid4

import boto3
from gcp_storage_emulator.server import RequestHandler
from gcp_storage_emulator.storage import Storage
from moto import settings as moto_settings
from moto.server import ThreadedMotoServer

_REGION = "us-east-1"
_PATIENCE_S = 30.0
SECRET = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
"""What must never be printed."""


class S3Server:
    """moto's server."""

    scheme = "s3"

    def __init__(self, address):
        self.environ = {
            "AWS_ENDPOINT_URL": address,
            "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE",
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_DEFAULT_REGION": _REGION,
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_MAX_ATTEMPTS": "1",
            "NO_PROXY": "127.0.0.1",
        }
        self._client = boto3.client(
            "s3", endpoint_url=address, region_name=_REGION, aws_access_key_id="any",
            aws_secret_access_key="any",
        )  # fmt: skip

    def create(self):
        """Create a bucket; return its name."""
        name = f"bucket-{uuid4().hex[:12]}"
        self._client.create_bucket(Bucket=name)
        return name

    def put(self, bucket, name, data):
        self._client.put_object(Bucket=bucket, Key=name, Body=data)

    def remove(self, bucket, name):
        self._client.delete_object(Bucket=bucket, Key=name)

    def drop(self, bucket):
        """Delete a bucket with all that it has."""
        for one in self._client.list_objects_v2(Bucket=bucket).get("Contents", ()):
            self.remove(bucket, one["Key"])
        self._client.delete_bucket(Bucket=bucket)

    @contextmanager
    def denying(self):
        """Refuse the keys of `environ`, which no user has."""
        before = moto_settings.INITIAL_NO_AUTH_ACTION_COUNT
        moto_settings.INITIAL_NO_AUTH_ACTION_COUNT = 0
        try:
            yield
        finally:
            moto_settings.INITIAL_NO_AUTH_ACTION_COUNT = before


@contextmanager
def s3_server():
    """Run a server of S3."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    try:
        yield S3Server(f"http://{host}:{port}")
    finally:
        server.stop()


class _Handler(RequestHandler):
    """The emulator's, which answers with an error while there is one."""

    def do_GET(self):  # noqa: N802 - the base's name
        if not self.server.error:
            super().do_GET()
            return
        code, message = self.server.error
        reason = {"message": message, "domain": "global", "reason": "forbidden"}
        error = {"code": code, "message": message, "errors": [reason]}
        body = json.dumps({"error": error}).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json; charset=UTF-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class _QuietServer(ThreadingHTTPServer):
    error = None

    def handle_error(self, request, client_address):
        """Print nothing: a client may close a connection before it has read all."""


class GcsServer:
    """gcp-storage-emulator's server."""

    scheme = "gs"

    def __init__(self, server):
        self._server = server
        self._address = f"http://127.0.0.1:{server.server_address[1]}"
        self.environ = {
            "STORAGE_EMULATOR_HOST": self._address,
            "NO_GCE_CHECK": "true",
            "NO_PROXY": "127.0.0.1",
        }

    def create(self):
        """Create a bucket; return its name."""
        name = f"bucket-{uuid4().hex[:12]}"
        self._send("POST", "/storage/v1/b?project=p", json.dumps({"name": name}).encode())
        return name

    def put(self, bucket, name, data):
        place = f"/upload/storage/v1/b/{bucket}/o?uploadType=media&name={quote(name, safe='')}"
        self._send("POST", place, data, kind="application/octet-stream")

    def remove(self, bucket, name):
        self._send("DELETE", f"/storage/v1/b/{bucket}/o/{quote(name, safe='')}")

    def drop(self, bucket):
        """Delete a bucket with all that it has."""
        listed = json.loads(self._send("GET", f"/storage/v1/b/{bucket}/o"))
        for one in listed.get("items", ()):
            self.remove(bucket, one["name"])
        self._send("DELETE", f"/storage/v1/b/{bucket}")

    @contextmanager
    def denying(self):
        """Refuse a principal that has no right."""
        with self.failing(403, "reader@p.iam.gserviceaccount.com does not have access"):
            yield

    @contextmanager
    def failing(self, code, message):
        """Answer with an error of the JSON API."""
        self._server.error = (code, message)
        try:
            yield
        finally:
            self._server.error = None

    def _send(self, method, path, data=None, *, kind="application/json"):
        request = urllib.request.Request(
            self._address + path, data, {"Content-Type": kind}, method=method
        )
        with urllib.request.urlopen(request, timeout=_PATIENCE_S) as answer:
            return answer.read()


@contextmanager
def gcs_server():
    """Run a server of GCS, with buckets in memory."""
    handler = partial(_Handler, Storage(use_memory_fs=True))
    with _QuietServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, name="gcs", daemon=True)
        thread.start()
        try:
            yield GcsServer(server)
        finally:
            server.shutdown()
            thread.join(_PATIENCE_S)
