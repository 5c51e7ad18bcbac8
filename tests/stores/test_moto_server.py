"""The S3 server of these tests decides between two requests for a new object."""

from __future__ import annotations

import threading
import time
import urllib.error
import urllib.request

import pytest

moto_server = pytest.importorskip("moto.server")

from moto.s3.models import S3Backend  # noqa: E402 - where moto is installed
from moto.s3.responses import S3Response  # noqa: E402

from tests.stores.moto_server import put_one_at_a_time  # noqa: E402 - as above


def put(address, results):
    request = urllib.request.Request(
        address, data=b"{}", method="PUT", headers={"If-None-Match": "*"}
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            results.append(answer.status)
    except urllib.error.HTTPError as error:
        results.append(error.code)


def test_of_two_puts_of_a_new_object_one_wins(monkeypatch):
    look = S3Backend.get_object

    def look_slowly(*arguments, **named):
        found = look(*arguments, **named)
        time.sleep(0.2)
        return found

    monkeypatch.setattr(S3Backend, "get_object", look_slowly)
    monkeypatch.setattr(S3Response, "put_object", S3Response.put_object)
    put_one_at_a_time()
    server = moto_server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        bucket = f"http://{host}:{port}/lake"
        with urllib.request.urlopen(urllib.request.Request(bucket, method="PUT"), timeout=30):
            pass
        results = []
        threads = [
            threading.Thread(target=put, args=(f"{bucket}/new.json", results)) for _ in range(2)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        server.stop()
    assert sorted(results) == [200, 412]
