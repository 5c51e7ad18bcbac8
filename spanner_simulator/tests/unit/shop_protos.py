"""Descriptors of a small shop: messages `shop.Customer` and `shop.Customer.Address`, an enum."""

from __future__ import annotations

from collections.abc import Mapping

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorSet

TIERS: Mapping[str, int] = {"UNKNOWN": 0, "GOLD": 1, "SILVER": 2}


def shop_descriptors(tiers: Mapping[str, int] = TIERS, *, customer: str = "Customer") -> bytes:
    """A serialised FileDescriptorSet, as clients send it."""
    found = FileDescriptorSet()
    file = found.file.add(name="shop/customer.proto", package="shop", syntax="proto3")
    enum = file.enum_type.add(name="Tier")
    for name, number in tiers.items():
        enum.value.add(name=name, number=number)
    message = file.message_type.add(name=customer)
    message.field.add(name="name", number=1, type=FieldDescriptorProto.TYPE_STRING)
    message.nested_type.add(name="Address")
    return found.SerializeToString()


BUNDLE = "CREATE PROTO BUNDLE (shop.Customer, shop.Customer.Address, shop.Tier)"
