"""The consumer's queries to Kafka before Spark starts, and the options that it gives to Spark."""
