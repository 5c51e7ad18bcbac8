"""The local stack: a real Kafka broker, a real schema registry, the Spanner simulator; no Docker.

| folder | content |
|---|---|
| `commands/` | `up`, `demo` and `show`; `cli.py` has their flags |
| `parts/` | the stack and its parts: broker, registry, simulator, Java, processes, ports |
| `demo/` | the bank and its workload, the kills, the run and its report |
| `judge/` | the comparison of the output with what was committed |

This module imports none of them: `dev` imports `parts.installed_java` before anything is installed.
"""

if __name__ != "tidegate.local_stack":
    message = (
        f"this package is tidegate.local_stack, and was imported as {__name__!r}: "
        "write `import tidegate.local_stack`, and take the repository's top folder off sys.path"
    )
    raise ImportError(message)
