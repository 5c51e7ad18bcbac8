"""The gate's decisions: frontier, watermark, releases, plans and states.

Pure: no Spark, no I/O, no clock.
"""
