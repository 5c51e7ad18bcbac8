"""What py4j says of a JVM that ends in a call."""

import logging
import socket
import struct
import threading

import pytest
from py4j.clientserver import ClientServer, JavaParameters, PythonParameters
from py4j.protocol import Py4JError

from tidegate.spark_consumer.commands.py4j_log import silence_py4j

RESET = struct.pack("ii", 1, 0)
"""SO_LINGER of a socket whose end is a reset."""


@pytest.fixture
def ending_jvm():
    """A port where each call is answered by the end of the connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve():
            try:
                while True:
                    connection, _ = server.accept()
                    connection.recv(1_000)
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                    connection.close()
            except OSError:
                return

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
    thread.join()


@pytest.fixture
def _loggers_of_a_new_process():
    """Tests of commands have silenced py4j perhaps."""
    root, py4j = logging.getLogger(), logging.getLogger("py4j")
    filters, level = list(root.filters), py4j.level
    root.filters.clear()
    py4j.setLevel(logging.NOTSET)
    yield
    root.filters[:] = filters
    py4j.setLevel(level)


def call(port):
    client = ClientServer(JavaParameters(port=port), PythonParameters(port=0))
    try:
        with pytest.raises(Py4JError):
            client.jvm.java.lang.System.nanoTime()
    finally:
        client.shutdown_callback_server()


@pytest.mark.usefixtures("_loggers_of_a_new_process")
def test_a_jvm_that_ends_in_a_call_is_an_error_and_no_line(ending_jvm, caplog):
    call(ending_jvm)
    assert "Exception while sending command." in caplog.text
    caplog.clear()
    silence_py4j()
    call(ending_jvm)
    logging.getLogger().error("another's line")
    assert [record.message for record in caplog.records] == ["another's line"]
