"""What every package may use: options, the clock, waiting, metrics, and small values of Kafka's model."""
