"""The topics of a stream as an AsyncAPI 3.0 document, for catalogues and code generators.

Describes what exists: topics, their numbers of topic partitions, and the newest schemas.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tidegate.version import __version__

if TYPE_CHECKING:
    from tidegate.producer.cli.schemas import StreamTopic
    from tidegate.producer.config import ProducerConfig


_AVRO = "application/vnd.apache.avro+json;version=1.9.0"
_JSON = "application/json"
_JSON_SUMMARY = (
    "JSON with the fields of this schema; docs/protocol/envelopes.md, 3.9 to 3.11, has the types."
)
_JSON_KEY = " The key is JSON, too."
_BINDING = "0.5.0"
_HEADERS = {
    "type": "object",
    "required": ["order", "mod"],
    "properties": {
        "order": {
            "type": "string",
            "format": "binary",
            "description": "Sorts bytewise in commit order; unique for each change.",
        },
        "mod": {
            "type": "string",
            "enum": ["I", "U", "D"],
            "description": "Insert, update or delete.",
        },
        "origin": {
            "type": "string",
            "format": "binary",
            "description": "XXH64, with the seed 42, of the token of the stream partition.",
        },
        "redriven": {
            "type": "string",
            "const": "1",
            "description": "Present if the change was put back from the dead-letter topic.",
        },
    },
}


def asyncapi(config: ProducerConfig, topics: Sequence[StreamTopic]) -> dict[str, Any]:
    """Return the document; an id is the topic's name with two dashes for each dot."""
    name = config.change_stream if config.names_source else config.prefix
    source = config.stream_path if config.names_source else f"the stream {config.prefix}"
    ids = {topic.topic: topic.topic.replace(".", "--") for topic in topics}
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": f"Changes of {name}",
            "version": __version__,
            "description": (
                f"Row changes of {source}, published by Tidegate: of one key in commit "
                "order, each exactly once. Read with isolation.level=read_committed."
            ),
        },
        "defaultContentType": "application/vnd.apache.avro",
        "servers": _servers(config),
        "channels": {
            ids[topic.topic]: _channel(topic, ids[topic.topic], tombstones=config.tombstones)
            for topic in topics
        },
        "operations": {
            f"publish-{ids[topic.topic]}": {
                "action": "send",
                "channel": {"$ref": f"#/channels/{ids[topic.topic]}"},
            }
            for topic in topics
        },
        "components": {
            "messages": {
                ids[topic.topic]: _message(
                    topic,
                    is_json=config.value_format == "json",
                    has_json_key=config.key_format == "json",
                )
                for topic in topics
            }
        },
    }


def _servers(config: ProducerConfig) -> dict[str, Any]:
    security = config.kafka_client_options().get("security.protocol", "plaintext").lower()
    protocol = "kafka-secure" if security.endswith("ssl") else "kafka"
    registry = {
        "schemaRegistryUrl": config.registry_url,
        "schemaRegistryVendor": "confluent",
        "bindingVersion": _BINDING,
    }
    return {
        f"kafka-{number}": {
            "host": host.strip(),
            "protocol": protocol,
            "bindings": {"kafka": registry},
        }
        for number, host in enumerate(config.bootstrap_servers.split(","))
    }


def _channel(topic: StreamTopic, name: str, *, tombstones: bool) -> dict[str, Any]:
    text = "Lineage, heartbeats and completion markers: what proves that nothing is missing"
    if topic.table is not None:
        text = f"Changes of table {topic.table}"
        if tombstones:
            text += ". After each DELETE, a record with its key, no headers and no value"
    return {
        "address": topic.topic,
        "description": f"{text}.",
        "messages": {name: {"$ref": f"#/components/messages/{name}"}},
        "bindings": {
            "kafka": {
                "topic": topic.topic,
                "partitions": topic.topic_partitions,
                "bindingVersion": _BINDING,
            }
        },
    }


def _message(topic: StreamTopic, *, is_json: bool, has_json_key: bool) -> dict[str, Any]:
    """Describe the messages of a topic; those of a data topic may be JSON without a schema id."""
    summary = _JSON_SUMMARY + (_JSON_KEY if has_json_key else "")
    headers = {} if topic.table is None else {"headers": _HEADERS}
    is_json = is_json and topic.table is not None
    schema_id = {"schemaIdLocation": "payload", "schemaIdPayloadEncoding": "confluent"}
    return {
        "name": str(topic.value.schema["name"]),
        "contentType": _JSON if is_json else "application/vnd.apache.avro",
        **({"summary": summary} if is_json else {}),
        **headers,
        "payload": {"schemaFormat": _AVRO, "schema": topic.value.schema},
        "bindings": {
            "kafka": {
                "key": {"schemaFormat": _AVRO, "schema": topic.key.schema},
                **({} if is_json else schema_id),
                "bindingVersion": _BINDING,
            }
        },
    }
