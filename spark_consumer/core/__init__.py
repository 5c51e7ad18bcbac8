"""The gate's decisions: releases, plans and states.

Pure: no Spark, no I/O, no clock.
"""
