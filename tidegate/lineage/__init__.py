"""What the records of a progress topic say together: lineage, snapshots in effect, watermark.

Pure: no client, no I/O, no clock.  Producer and consumer fold with this code.
"""
