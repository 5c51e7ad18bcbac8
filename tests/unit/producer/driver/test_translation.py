"""A translator that looks a table up again, once per change."""

import threading

import pytest

from tidegate.producer.core.translate import TableEncoding, Translator
from tidegate.producer.driver.translation import LearningTranslator
from tidegate.producer.errors import IncompatibleChange
from tidegate.producer.spanner_records import DataChangeRecord, Mod, RecordColumn
from tidegate.schemas.errors import UnreachableError
from tidegate.schemas.tables import Column, ColumnType, TableSchema

INT64 = ColumnType("INT64")


class PlainEncoder:
    def encode(self, datum):
        return repr(datum).encode()


def encoding(*columns):
    schema = TableSchema("t", (Column("id", INT64, 1, key_position=1), *columns))
    return TableEncoding(schema, "p.t", PlainEncoder(), PlainEncoder())


OLD, NEW = encoding(), encoding(Column("added", INT64, 2))
RECORD = DataChangeRecord(
    commit_timestamp_ns=5_000,
    record_sequence="00000000",
    server_transaction_id="tx",
    is_last_record_in_transaction_in_partition=True,
    table_name="t",
    columns=(RecordColumn("id", INT64, True, 1), RecordColumn("added", INT64, False, 2)),
    mods=(Mod({"id": "1"}, {"added": "2"}, {}),),
    mod_type="INSERT",
    value_capture_type="NEW_ROW",
    number_of_records_in_transaction=1,
    number_of_partitions_in_transaction=1,
    transaction_tag="",
    is_system_transaction=False,
)


def learning(known, refresh):
    return LearningTranslator(Translator(known, change_stream="s"), refresh)


def test_a_known_table_is_not_looked_up():
    asked = []
    learning({"t": NEW}, lambda *args: asked.append(args)).translate(RECORD, token="k")
    assert asked == []


def test_an_unknown_column_is_looked_up_once_and_the_record_told():
    asked = []

    def refresh(record, known):
        asked.append((record, known))
        return NEW

    translator = learning({"t": OLD}, refresh)
    for _ in range(2):
        (message,) = translator.translate(RECORD, token="k").messages
        assert b"'added': 2" in message.value
    assert asked == [(RECORD, OLD)]


def test_an_unknown_table_is_looked_up():
    translated = learning({}, lambda *_: NEW).translate(RECORD, token="k")
    assert translated.messages[0].topic == "p.t"


def test_a_look_up_that_does_not_help_is_an_error():
    with pytest.raises(IncompatibleChange, match="added"):
        learning({"t": OLD}, lambda *_: OLD).translate(RECORD, token="k")


def test_a_failing_look_up_is_told_and_tried_again_with_the_next_record():
    answers = [UnreachableError("no answer"), NEW]

    def refresh(_record, _known):
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    translator = learning({"t": OLD}, refresh)
    with pytest.raises(UnreachableError):
        translator.translate(RECORD, token="k")
    assert translator.translate(RECORD, token="k").messages


def test_threads_that_meet_one_change_look_it_up_once():
    all_failed, asked = threading.Barrier(4), []

    class Meeting(Translator):
        def __init__(self):
            super().__init__({"t": OLD}, change_stream="s")
            self.met = threading.local()

        def translate(self, record, *, token):
            try:
                return super().translate(record, token=token)
            except Exception:
                if not hasattr(self.met, "once"):
                    self.met.once = True
                    all_failed.wait(20)
                raise

    def refresh(record, _known):
        asked.append(record)
        return NEW

    translator = LearningTranslator(Meeting(), refresh)
    results = []
    threads = [
        threading.Thread(target=lambda: results.append(translator.translate(RECORD, token="k")))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(results) == 4
    assert len(asked) == 1
