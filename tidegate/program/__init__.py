"""What the programs share: settings, command lines, logs, metrics, health, clients and probes."""
