"""A reset removes what bears the prefix, once nobody works on it and somebody has agreed."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from tidegate.producer.commands import reset as command
from tidegate.producer.commands.reset import reset
from tidegate.schemas.errors import ConfigError, SchemaError
from tidegate.schemas.registry import InMemorySchemaRegistry

TOPICS, GROUPS = ["bank-progress", "bank.Users"], ["bank-fleet", "bank-fleet-w1"]


class Removal:
    """Holds topics and groups; `removed` has what is gone."""

    def __init__(self):
        self.found = (TOPICS, GROUPS)
        self.removed = []

    def topics(self):
        return self.found[0]

    def groups(self):
        return self.found[1]

    def remove(self, topics, groups):
        self.removed += [*topics, *groups]


class Registry(InMemorySchemaRegistry):
    def require_reachable(self):
        """It is."""

    def subject_names(self):
        return sorted(self.subjects)

    def delete(self, subject):
        del self.subjects[subject]


@pytest.fixture
def removal(monkeypatch):
    found = Removal()
    monkeypatch.setattr(command, "StreamRemoval", lambda *_: found)
    exempt = []
    monkeypatch.setattr(
        command, "require_no_worker", lambda *_, former_run: exempt.append(former_run)
    )
    found.exempt = exempt
    return found


@pytest.fixture(autouse=True)
def names(monkeypatch):
    """How often the names of the stream's topics were compared, and what that ends with."""
    found = SimpleNamespace(compared=0, error=None)

    def require(_config, _schema_of):
        found.compared += 1
        if found.error is not None:
            raise found.error

    monkeypatch.setattr(command, "require_topic_names", require)
    return found


@pytest.fixture
def known(monkeypatch):
    found = Registry()
    for subject in ("bank.Users-key", "bank.Users-value", "other-value"):
        found.register(subject, {"type": "string"})
    monkeypatch.setattr(command, "HttpSchemaRegistry", lambda _url, options: found)
    return found


def test_topics_and_groups_go_and_subjects_stay(place, removal, known):
    said = []
    report = reset(place.config(), progress=lambda what, _: said.append(what))
    assert removal.removed == [*TOPICS, *GROUPS]
    assert json.loads(report.as_json()) == {
        "prefix": "bank", "topics": TOPICS, "groups": GROUPS, "subjects": [], "removed": True,
    }  # fmt: skip
    assert len(known.subjects) == 3
    assert said == ["deleting topics and groups"]
    # A member that has the name of this host's worker is that worker.
    assert removal.exempt == [None]


def test_subjects_go_if_they_are_asked_for(place, removal, known):
    report = reset(place.config(), with_subjects=True)
    assert report.subjects == ["bank.Users-key", "bank.Users-value"]
    assert set(known.subjects) == {"other-value"}


@pytest.mark.parametrize("options", [{"dry_run": True}, {"confirm": lambda _report: False}])
def test_nothing_goes_before_somebody_has_agreed(place, removal, known, options):
    report = reset(place.config(), with_subjects=True, **options)
    assert (report.topics, report.removed, removal.removed) == (TOPICS, False, [])
    assert len(known.subjects) == 3


def test_nothing_goes_of_a_stream_whose_data_topics_have_other_names(place, removal, known, names):
    names.error = ConfigError("topic_template: the stream was begun with '{prefix}-{table}'")
    with pytest.raises(ConfigError, match="topic_template"):
        reset(place.config(), with_subjects=True)
    assert removal.removed == []
    assert len(known.subjects) == 3


def test_a_stream_whose_records_cannot_be_read_any_more_goes(place, removal, known, names):
    names.error = SchemaError("the registry does not know the schema")
    assert reset(place.config()).removed


def test_names_are_compared_only_while_there_is_a_progress_topic(place, removal, known, names):
    reset(place.config(), dry_run=True)
    removal.found = (["bank.Users"], [])
    reset(place.config(), dry_run=True)
    assert names.compared == 1


def test_nothing_goes_while_workers_run(place, removal, known, monkeypatch):
    def refuse(*_, **_options):
        raise ConfigError("workers run in group bank-fleet: w1")

    monkeypatch.setattr(command, "require_no_worker", refuse)
    with pytest.raises(ConfigError, match="workers run"):
        reset(place.config(), with_subjects=True)
    assert removal.removed == []
    assert len(known.subjects) == 3


def test_subjects_that_an_interrupted_reset_left_are_found(place, removal, known):
    removal.found = ([], [])
    report = reset(place.config(), with_subjects=True)
    assert (report.subjects, report.removed) == (["bank.Users-key", "bank.Users-value"], True)
    assert set(known.subjects) == {"other-value"}


def test_a_stream_that_is_not_there_is_not_asked_about(place, removal, known):
    removal.found = ([], [])
    report = reset(place.config(), confirm=lambda _report: pytest.fail("asked"))
    assert (report.topics, report.removed) == ([], False)
