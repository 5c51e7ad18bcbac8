"""What Helm makes of the chart, kept in the repository so that checking it needs no Helm.

`./dev chart` writes it.  The first line of each file has a hash of all that it is made from, so a
test sees that it is stale.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, get_origin

import yaml
from pydantic import SecretStr
from pydantic_core import PydanticUndefined

from tidegate.producer.config import ProducerConfig
from tidegate.spark_consumer.config import ConsumerConfig

_HELM = Path(__file__).resolve().parents[2] / "deploy" / "helm"
_HERE = Path(__file__).resolve().parent / "charts"
_KUBERNETES = "1.30.0"

RENDERED = _HELM / "rendered.yaml"
"""What users see: made from the example's values."""

CASES = {
    "example": (_HELM / "example-values.yaml", RENDERED),
    "settings": (_HERE / "settings-values.yaml", _HERE / "settings.yaml"),
    "files": (_HERE / "files-values.yaml", _HERE / "files.yaml"),
}
"""Values, and what Helm makes of them: the example, every setting, Datastream's files."""

_STREAM = {
    "bootstrapServers": "broker-1:9093",
    "registryUrl": "https://registry.example/",
    "prefix": "orders",
    "kafkaOptions": {"reconnect.backoff.max.ms": 1_000_000, "security.protocol": "SSL"},
}
_OF_STREAM = {"bootstrap_servers", "registry_url", "prefix"}
_OF_CHART = {"worker", "metrics_host", "metrics_port", "master", "packages", "jars", "java_options"}

_TEXT = 'a,"b" = \\c <d> & ü \x7f'
_GIVEN: dict[str, Any] = {
    "project": "my-project", "instance": "my-instance", "database": "my_db",
    "change_stream": "Orders", "output": "s3a://lake/orders", "checkpoint": "/data/checkpoint",
    "tags_left_out": _TEXT, "credentials_file": "/etc/credentials/a.json",
    "source": {"kind": "spanner"}, "start": "2026-01-31T12:00:00Z",
    "system_transactions_left_out": True, "inflight_bytes_max": 1_234_567_890,
    "topic_template": "{prefix}-{table}", "tombstones": True,
    "kafka_options": {"client.id": "one", "retry.backoff.ms": 200},
    "registry_options": {"ssl.ca.location": "/etc/ca.pem", "timeout": 2.5},
    "table_properties": {"delta.logRetentionDuration": "interval 30 days"},
    "mirror_partition_by": {"shop.orders": "Region", _TEXT: "b"},
    "mirror_cluster_by": {"items": "OrderId"},
}  # fmt: skip
"""What is given instead of a default: required settings, and each form of value that TOML has."""


def plain_settings(config: type[ProducerConfig | ConsumerConfig]) -> dict[str, Any]:
    """Return a value of every setting that a ConfigMap may hold and the chart does not set."""
    fields = {
        name: field
        for name, field in config.model_fields.items()
        if name not in _OF_STREAM | _OF_CHART and field.annotation is not SecretStr
    }
    return {
        name: _GIVEN.get(name, {} if get_origin(field.annotation) is dict else field.default)
        for name, field in fields.items()
        if name in _GIVEN or field.default not in (None, PydanticUndefined)
    }


def write_values() -> None:
    """Write the values with every setting."""
    values = {
        "stream": _STREAM,
        "producer": {"settings": plain_settings(ProducerConfig)},
        "consumer": {"settings": plain_settings(ConsumerConfig)},
    }
    CASES["settings"][0].write_text(
        "# Every setting of both programs; written by ./dev chart.\n"
        + yaml.safe_dump(values, allow_unicode=False, width=100)
    )


def first_line(values: Path) -> str:
    """Return the comment that names what a rendered file is made from."""
    digest = hashlib.sha256()
    for path in sorted(
        [values, *(one for one in (_HELM / "tidegate").rglob("*") if one.is_file())]
    ):
        digest.update(f"{path.name}\n".encode() + path.read_bytes())
    return f"# Made by ./dev chart from {values.name}; sources {digest.hexdigest()[:16]}\n"


def rendered(helm: str, values: Path) -> str:
    """Return the manifests; raises CalledProcessError if Helm refuses the chart."""
    command = [helm, "template", "bridge", str(_HELM / "tidegate"), "-f", str(values)]
    command += ["--kube-version", _KUBERNETES]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return first_line(values) + done.stdout


def main() -> int:
    helm = shutil.which("helm")
    if helm is None:
        sys.stderr.write(
            "helm is needed; type: go install helm.sh/helm/v3/cmd/helm@v3.19.0, "
            "and put its folder on PATH\n"
        )
        return 2
    write_values()
    for values, file in CASES.values():
        file.write_text(rendered(helm, values))
    return 0


if __name__ == "__main__":
    sys.exit(main())
