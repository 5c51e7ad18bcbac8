"""The state of a stream as folded from its progress topic: lineage, snapshots in effect, watermark.

Pure: no client, no I/O, no clock.  Producer and consumer fold with this code.
"""

if __name__ != "tidegate.lineage":
    message = (
        f"this package is tidegate.lineage, and was imported as {__name__!r}: "
        "write `import tidegate.lineage`, and take the repository's top folder off sys.path"
    )
    raise ImportError(message)
