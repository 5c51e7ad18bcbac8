"""Files in the order of writing, found without listing what is not needed."""

import pytest

from tidegate.producer.datastream.file_store import LocalStore
from tidegate.producer.datastream.file_tree import (
    all_files,
    is_event_file,
    newest_files,
    object_folders,
)

NAMES = (
    "shop_orders/2023/12/31/23/59/a.avro",
    "shop_orders/2024/01/01/00/00/a.avro",
    "shop_orders/2024/01/01/00/00/b.avro",
    "shop_orders/2024/01/01/00/01/a.jsonl.gz",
    "shop_users/2024/01/01/00/00/a.avro",
)


class Counting(LocalStore):
    """Counts the folders that were listed."""

    def __init__(self):
        self.listed = 0

    def entries(self, folder):
        self.listed += 1
        return super().entries(folder)


@pytest.fixture
def tree(tmp_path):
    for name in (*NAMES, "shop_users/2024/01/01/00/00/_SUCCESS", ".hidden/2024/x.avro"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    return tmp_path


def below(tree, found):
    return [one.path.removeprefix(f"{tree}/") for one in found]


@pytest.mark.rule("datastream-objects")
def test_objects_are_the_folders_of_a_stream(tree):
    found = object_folders(LocalStore(), str(tree))
    assert [one.removeprefix(f"{tree}/") for one in found] == ["shop_orders", "shop_users"]


def test_the_folder_of_one_object_and_one_with_files_are_themselves(tree):
    for name in ("shop_orders", "shop_orders/2024", "shop_users/2024/01/01/00/00"):
        folder = str(tree / name)
        if name != "shop_orders/2024":
            assert object_folders(LocalStore(), folder) == [folder]
    one = str(tree / NAMES[0])
    assert object_folders(LocalStore(), one) == [one]
    assert below(tree, newest_files(LocalStore(), one, 5)) == [NAMES[0]]


@pytest.mark.rule("datastream-folders")
def test_all_files_come_the_oldest_first(tree):
    store = LocalStore()
    found = [
        name
        for folder in object_folders(store, str(tree))
        for name in below(tree, all_files(store, folder))
    ]
    assert found == list(NAMES)


@pytest.mark.rule("datastream-folders")
def test_the_newest_files_come_first_and_older_folders_are_not_listed(tree):
    store = Counting()
    found = newest_files(store, str(tree / "shop_orders"), 1)
    assert below(tree, found) == [NAMES[3]]
    assert store.listed == 6  # the object, and one folder for each part of the time
    assert below(tree, newest_files(store, str(tree / "shop_orders"), 9)) == list(NAMES[3::-1])


@pytest.mark.parametrize("name", ["a.avro", "A.AVRO", "a.avro.gz", "a.jsonl", "a.json.gz"])
def test_names_of_event_files(name):
    assert is_event_file(name)


@pytest.mark.parametrize("name", ["a", "a.txt", "_a.avro", ".a.avro", "a.avro.tmp", "a.schema"])
def test_other_names(name):
    assert not is_event_file(name)
