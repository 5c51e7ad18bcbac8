"""A folder of an output in memory, which counts what is read."""

from __future__ import annotations

import json


class MemoryFiles:
    """Files of JSON by their names."""

    def __init__(self):
        self.content = {}
        self.reads = self.lists = 0

    def path(self, name):
        return f"file:/lake/{name}"

    def read_json(self, name):
        self.reads += 1
        text = self.content.get(name)
        return None if text is None else json.loads(text)

    def write_json(self, name, content):
        self.content[name] = json.dumps(content)

    def delete(self, names):
        for name in names:
            self.content.pop(name, None)

    def names(self, folder):
        self.lists += 1
        found = (name.rpartition("/") for name in self.content)
        return sorted(name for head, _, name in found if head == folder)
