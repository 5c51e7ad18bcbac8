"""What `StreamStarted.filters` says of the form of the output, and that it leaves nothing out."""

from __future__ import annotations

import pytest

from tidegate.schemas.output_form import (
    Envelope,
    KeyFormat,
    OutputForm,
    ValueFormat,
    left_out,
    recorded_form,
)

FORMS = {
    OutputForm(): (),
    OutputForm(tombstones=True): ("producer.tombstones=true",),
    OutputForm(envelope=Envelope.FLAT): ("producer.envelope=flat",),
    OutputForm(tombstones=True, envelope=Envelope.FLAT): (
        "producer.envelope=flat",
        "producer.tombstones=true",
    ),
    OutputForm(envelope=Envelope.DEBEZIUM): ("producer.envelope=debezium",),
    OutputForm(envelope=Envelope.DATASTREAM, value_format=ValueFormat.JSON): (
        "producer.envelope=datastream",
        "producer.value_format=json",
    ),
    OutputForm(
        envelope=Envelope.DEBEZIUM, value_format=ValueFormat.JSON, key_format=KeyFormat.JSON
    ): ("producer.envelope=debezium", "producer.value_format=json", "producer.key_format=json"),
}


@pytest.mark.parametrize(("form", "described"), FORMS.items())
def test_what_is_described_is_read_back_and_defaults_are_not_named(form, described):
    filters = ("exclude_delete", "producer.tables=A,B", *described)

    assert form.described == described
    assert OutputForm.of(filters) == form


@pytest.mark.parametrize("form", FORMS)
def test_a_form_leaves_nothing_out(form):
    filters = ("exclude_delete", "producer.mod_types=insert", "producer.tables=producer.tombstones")

    assert left_out(form.described) == ()
    assert left_out((*filters, *form.described)) == filters


def test_the_template_of_topic_names_leaves_nothing_out():
    assert left_out(("producer.topic_template={prefix}-{table}", "producer.tables=A")) == (
        "producer.tables=A",
    )


def test_every_setting_of_the_form_is_known_with_its_value():
    defaults = {
        "envelope": "tidegate", "tombstones": "false", "value_format": "avro", "key_format": "avro",
    }  # fmt: skip
    assert recorded_form(()) == defaults
    assert recorded_form(("producer.envelope=later", "producer.tombstones=true", "x")) == {
        **defaults,
        "envelope": "later",
        "tombstones": "true",
    }
