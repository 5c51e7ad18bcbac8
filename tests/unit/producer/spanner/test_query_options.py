"""What every query asks of Spanner beside its records."""

from __future__ import annotations

import pytest
from google.cloud.spanner_v1.types import DirectedReadOptions, ExecuteSqlRequest, RequestOptions

from tidegate.producer.description import GOOGLE_SQL, IMMUTABLE_KEY_RANGE
from tidegate.producer.spanner.forms import form_of
from tidegate.producer.spanner.query_options import QueryOptions
from tidegate.producer.spanner.stream import SpannerChangeStream

KIND = DirectedReadOptions.ReplicaSelection.Type


def applied(options):
    request = ExecuteSqlRequest.pb()()
    options.apply(request)
    return request


def test_by_default_nothing_is_sent():
    assert applied(QueryOptions()) == ExecuteSqlRequest.pb()()


@pytest.mark.rule("spanner-query-options")
@pytest.mark.parametrize("priority", ["LOW", "MEDIUM", "HIGH"])
def test_priority_and_tag(priority):
    options = applied(QueryOptions(priority=priority, tag="app=cdc")).request_options
    assert options.priority == RequestOptions.Priority[f"PRIORITY_{priority}"]
    assert options.request_tag == "app=cdc"


@pytest.mark.rule("spanner-query-options")
def test_replicas_in_their_order():
    options = QueryOptions(replicas=(("us-east4", "READ_ONLY"), ("us-west2", "")))
    found = applied(options).directed_read_options.include_replicas.replica_selections
    assert [(one.location, one.type_) for one in found] == [
        ("us-east4", KIND.READ_ONLY),
        ("us-west2", KIND.TYPE_UNSPECIFIED),
    ]


@pytest.mark.rule("spanner-query-options")
def test_each_query_has_them(channels, spanner, tasks):
    form = form_of(GOOGLE_SQL, IMMUTABLE_KEY_RANGE, "Everything")
    stream = SpannerChangeStream(channels, form, QueryOptions(priority="LOW", tag="app=cdc"))
    query = stream.query(token="t", start_ns=1, end_ns=None, heartbeat_ms=1_000)
    assert tasks.run(query.next_size) is None

    sent = spanner.requests[-1].request_options
    assert (sent.priority, sent.request_tag) == (RequestOptions.Priority.PRIORITY_LOW, "app=cdc")
