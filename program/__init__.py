"""What the programs share: settings, command lines, logs, metrics, health, clients and probes."""

if __name__ != "tidegate.program":
    message = (
        f"this package is tidegate.program, and was imported as {__name__!r}: "
        "write `import tidegate.program`, and take the repository's top folder off sys.path"
    )
    raise ImportError(message)
