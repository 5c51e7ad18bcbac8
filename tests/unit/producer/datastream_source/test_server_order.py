"""Servers of MySQL that follow one another: their transactions sort as the list says."""

import itertools
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.producer.datastream_source.server_order import ServerOrder

A, B, C = (f"{letter * 8}-71ca-11e1-9e33-c80aa9429562" for letter in "abc")


def key(number, place=4):
    return b"\1" + struct.pack(">QQB", number, place, 1)


def ranked(servers, server, number, place=4):
    return servers.ranked(key(number, place), f"{server}:{number}")


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 99), st.integers(0, 9)), unique=True))
def test_transactions_sort_by_server_and_then_by_number(places):
    """A, then B, then A again from its hundredth on, then C."""
    servers = ServerOrder.of([A, B, f"{A.upper()}:100", C])
    names, offsets = (A, B, A, C), (0, 0, 100, 0)
    found = sorted(
        (ranked(servers, names[turn], offsets[turn] + number, place), turn, number, place)
        for turn, number, place in places
    )
    assert [one[1:] for one in found] == sorted(places)


def test_the_first_servers_keys_and_its_log_are_those_without_a_list():
    largest = 10**18 - 1
    for servers in (ServerOrder(), ServerOrder.of([A, B])):
        assert ranked(servers, A, largest) == key(largest)
        assert servers.log_of(None, f"{A}:7") == f"gtid {A}"
        assert servers.log_of("mysql-bin.000007", None) == "mysql-bin"
        assert servers.log_of(None, "0-1-270") == "gtid domain 0"
    assert servers.log_of(None, f"{B.upper()}:7") == f"gtid {A}"
    assert ranked(servers, B, 1) > key(largest)
    assert servers.log_of(None, f"{C}:7") == f"gtid {C}"


def test_a_server_counts_from_its_entrys_transaction_on():
    servers = ServerOrder.of([B, f"{A}:100"])
    assert servers.log_of(None, f"{A}:99") == f"gtid {A}"  # another one, which is refused
    assert servers.log_of(None, f"{A}:100") == f"gtid {B}"
    assert ranked(servers, A, 99) == key(99)
    assert ranked(servers, A, 100) > ranked(servers, B, 10**18 - 1)


@pytest.mark.parametrize("count", [2, 16])
def test_so_many_servers_have_an_order(count):
    names = [f"{number:08x}-71ca-11e1-9e33-c80aa9429562" for number in range(count)]
    servers = ServerOrder.of(names)
    found = [ranked(servers, name, number) for name in names for number in (0, 10**18 - 1)]
    assert all(one < other for one, other in itertools.pairwise(found))
    assert all(len(one) == len(key(1)) for one in found)
