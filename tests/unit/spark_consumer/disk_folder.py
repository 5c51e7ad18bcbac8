"""A folder of this machine that also writes, as the gate and an output do."""

from __future__ import annotations

import json
from pathlib import Path

from tidegate.spark_consumer.checkpoint.json_files import LocalFolder


class DiskFolder(LocalFolder):
    """Files of JSON below a path."""

    def write_json(self, name, content):
        path = Path(self.root, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content))

    def delete(self, names):
        for name in names:
            Path(self.root, name).unlink(missing_ok=True)
