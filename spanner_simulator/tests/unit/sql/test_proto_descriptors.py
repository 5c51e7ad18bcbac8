from __future__ import annotations

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from spanner_simulator.errors import Code, SpannerError
from spanner_simulator.sql.proto_descriptors import read_descriptors
from unit.shop_protos import shop_descriptors


def test_all_types_are_found_by_their_full_names() -> None:
    read = read_descriptors(shop_descriptors())
    assert list(read.types) == ["shop.Tier", "shop.Customer", "shop.Customer.Address"]
    assert dict(read.types["shop.Tier"].members)["SILVER"] == 2


def test_names_without_a_package_and_enums_in_messages() -> None:
    given = FileDescriptorSet()
    message = given.file.add(name="a.proto").message_type.add(name="M")
    message.enum_type.add(name="E").value.add(name="ZERO", number=0)
    assert list(read_descriptors(given.SerializeToString()).types) == ["M", "M.E"]


def test_files_are_sets_that_can_be_appended() -> None:
    given = FileDescriptorSet()
    given.file.add(name="a.proto")
    given.file.add(name="b.proto")
    files = read_descriptors(given.SerializeToString()).files
    joined = FileDescriptorSet.FromString(files["b.proto"] + files["a.proto"])
    assert [file.name for file in joined.file] == ["b.proto", "a.proto"]


def test_bytes_that_are_no_set_are_refused() -> None:
    with pytest.raises(SpannerError, match="Could not parse contents") as caught:
        read_descriptors(b"garbage")
    assert caught.value.code is Code.INVALID_ARGUMENT
