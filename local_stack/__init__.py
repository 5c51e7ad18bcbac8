"""The local stack: a real Kafka broker, a real schema registry, the Spanner simulator; no Docker.

| module | what it owns |
|---|---|
| `java` | finding a Java that runs; nothing but the standard library, `dev` uses it too |
| `jvm_parts` | the broker's, registry's and Spark's jars: fetched once, checked, reused |
| `process`, `supervisor` | a child program that cannot outlive us |
| `ports` | free ports, and the clear error for a taken one |
| `kafka_broker`, `schema_registry`, `simulator` | one part each |
| `stack` | all parts together |
| `config`, `cli` | settings and commands |

This module imports none of them: importing `tidegate.local_stack.java` must not need any extra.
"""

if __name__ != "tidegate.local_stack":
    message = (
        f"this package is tidegate.local_stack, and was imported as {__name__!r}: "
        "write `import tidegate.local_stack`, and take the repository's top folder off sys.path"
    )
    raise ImportError(message)
