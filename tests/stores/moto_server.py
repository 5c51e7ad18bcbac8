"""The program of the S3 server: moto's, in which one request at a time puts an object.

moto looks whether an object is there and puts it then, in threads: of two requests that ask for a
new object (`If-None-Match: *`) both can win, as on no server that has conditional writes.
"""

from __future__ import annotations

from functools import wraps
from threading import Lock

from moto.s3.responses import S3Response
from moto.server import main


def put_one_at_a_time() -> None:
    """Serialize the requests that put objects in this process."""
    put, lock = S3Response.put_object, Lock()

    @wraps(put)
    def put_alone(response, *arguments, **named):
        with lock:
            return put(response, *arguments, **named)

    S3Response.put_object = put_alone


if __name__ == "__main__":
    put_one_at_a_time()
    main()
