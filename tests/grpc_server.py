"""gRPC's own server with one streaming method, and connections to it on one asyncio loop."""

import asyncio
from functools import partial

import grpc

from tidegate.producer.spanner.transport.call import WAITING, ReadAhead
from tidegate.producer.spanner.transport.connection import Connection
from tidegate.producer.spanner.transport.endpoint import Endpoint
from tidegate.producer.spanner.transport.grpc_connection import GrpcConnection
from tidegate.producer.spanner.transport.stream_channels import StreamChannels

PATIENCE_S = 60


class Server:
    """A gRPC server whose only method is a generator of bytes, given the request."""

    def __init__(self, respond, *, certificate=None, options=(), over_grpc=False):
        self.respond = respond
        self.over_grpc = over_grpc
        self.certificate = certificate
        self.options = options
        self.metadata = []

    async def __aenter__(self):
        self.server = grpc.aio.server(options=self.options)
        handler = grpc.unary_stream_rpc_method_handler(self._respond)
        self.server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("service", {"method": handler}),)
        )
        address = "127.0.0.1:0"
        if self.certificate is None:
            port = self.server.add_insecure_port(address)
        else:
            both = self.certificate.read_bytes()
            port = self.server.add_secure_port(address, grpc.ssl_server_credentials([(both, both)]))
        await self.server.start()
        self.endpoint = Endpoint(f"127.0.0.1:{port}", is_secure=self.certificate is not None)
        self.opened = []
        self.channels = StreamChannels(self._open)
        return self

    async def __aexit__(self, *_):
        for one in self.opened:
            one.close()
        await self.server.stop(None)

    def _open(self):
        over_h2 = partial(Connection, ahead=ReadAhead())
        connect = GrpcConnection if self.over_grpc else over_h2
        self.opened.append(connect(self.endpoint))
        return self.opened[-1]

    async def _respond(self, request, context):
        self.metadata.append(dict(context.invocation_metadata()))
        async for message in self.respond(request, context):
            yield message

    def call(self, request=b"request"):
        async def metadata():
            return [("name", "value")]

        return self.channels.call("/service/method", request, metadata)


async def read(stream, count=None):
    found = []
    while len(found) != count and (size := await stream.next_size()) is not None:
        if size != WAITING:
            found.append(await stream.read())
    return found


def run(use, respond, **options):
    async def whole():
        async with asyncio.timeout(PATIENCE_S), Server(respond, **options) as server:
            return await use(server)

    return asyncio.run(whole())


async def sizes(request, _context):
    """Messages of the sizes that the request names."""
    for size in request.split(b","):
        yield bytes(int(size))
