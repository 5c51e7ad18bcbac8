"""What `spark-submit` starts: a file outside the packages, whose folder no module of ours is in."""

from tidegate.spark_consumer.cli import main

main()
