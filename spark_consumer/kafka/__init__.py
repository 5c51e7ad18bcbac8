"""What the consumer asks Kafka before Spark starts, and the options that it gives to Spark."""
