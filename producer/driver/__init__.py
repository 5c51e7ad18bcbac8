"""Threads, time and the loop that carries events to the core and effects to the adapters."""
