"""The gRPC side of the simulator: everything that uses protobuf, clocks and waiting."""
