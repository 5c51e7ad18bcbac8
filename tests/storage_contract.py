"""What a folder of small files does on every file system that it may be on."""

from __future__ import annotations

import threading

import pytest

from tidegate.schemas.errors import UnreachableError
from tidegate.spark_consumer.checkpoint.storage import Storage
from tidegate.spark_consumer.errors import WriterReplaced


class StorageContract:
    """Needs the fixtures `spark` and `storage`, which has taken its folder."""

    races = 1_000

    def test_what_was_written_is_read(self, storage):
        content = {"text": "ü\n", "number": 1 << 60, "nested": [{"a": None}]}
        storage.write_json("states/1.json", content)
        assert storage.read_json("states/1.json") == content
        storage.write_json("states/1.json", [1])
        assert storage.read_json("states/1.json") == [1]
        assert storage.names("states") == ["1.json"]

    def test_a_missing_file_reads_as_none(self, storage):
        assert storage.read_json("states/1.json") is None
        assert storage.names("states") == []
        assert storage.written_ms("states/1.json") is None
        storage.delete(["states/1.json", "states"])

    def test_a_file_says_when_it_was_written(self, storage):
        for name in ("a", "b"):
            storage.write_json(name, 1)
        first, second = storage.written_ms("a"), storage.written_ms("b")
        assert 0 < first <= second
        assert storage.written_ms("a") == first

    def test_a_file_is_created_once(self, storage):
        assert storage.create_json("plans/1.json", 1)
        assert not storage.create_json("plans/1.json", 2)
        assert storage.read_json("plans/1.json") == 1
        assert storage.names("plans") == ["1.json"]

    def test_a_folder_is_deleted_with_what_it_holds(self, storage):
        storage.write_json("segments/a/part", 1)
        storage.write_json("segments/b/part", 1)
        storage.delete(["segments/a"])
        assert storage.names("segments") == ["b"]

    def test_a_folder_is_moved_in_place_of_another_by_the_writer_alone(self, spark, storage):
        for number in range(3):
            storage.write_json(f"jobs/{number}/part-{number}", number)
        for number in range(2):
            storage.move_folder(f"jobs/{number}", "t/000000000001")
            assert storage.names("t/000000000001") == [f"part-{number}"]
            assert storage.read_json(f"t/000000000001/part-{number}") == number
        with pytest.raises(UnreachableError):
            storage.move_folder("jobs/missing", "t/000000000002")
        Storage(spark, storage.root).take()
        with pytest.raises(WriterReplaced):
            storage.move_folder("jobs/2", "t/000000000001")
        assert storage.names("t/000000000001") == ["part-1"]

    def test_an_older_writer_stops_at_its_next_write(self, spark, storage):
        storage.write_json("a", 1)
        younger = Storage(spark, storage.root)
        assert younger.take() == 2
        for write in (
            lambda: storage.write_json("a", 2),
            lambda: storage.create_json("b", 2),
            lambda: storage.delete(["a"]),
        ):
            with pytest.raises(WriterReplaced):
                write()
        younger.write_json("c", 3)
        assert [younger.read_json(name) for name in ("a", "b", "c")] == [1, None, 3]

    def test_of_two_creators_of_a_file_one_wins(self, spark, storage):
        """Many files, each created by both at about the same time."""
        gate = threading.Barrier(2)
        wins = {0: [], 1: []}

        def create(who):
            creator = Storage(spark, storage.root)
            for number in range(self.races):
                gate.wait()
                if creator.create(f"plans/{number}.json", {"by": who}):
                    wins[who].append(number)

        threads = [threading.Thread(target=create, args=(who,)) for who in wins]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(wins[0] + wins[1]) == list(range(self.races))
        for who, numbers in wins.items():
            for number in numbers[::100]:
                assert storage.read_json(f"plans/{number}.json") == {"by": who}
