from tidegate.local_stack.parts.database_name import DatabaseName


def test_the_path_is_the_full_resource_name():
    name = DatabaseName("127.0.0.1:9010", project="p", instance="i", database="d")

    assert name.path == "projects/p/instances/i/databases/d"
