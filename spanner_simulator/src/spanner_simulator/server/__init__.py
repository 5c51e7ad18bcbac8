"""The gRPC face of the simulator: everything that knows protobuf, clocks and waiting."""
