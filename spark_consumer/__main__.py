"""`python -m tidegate.spark_consumer`."""

from tidegate.spark_consumer.cli import main

main()
