"""What every package may use: options, codecs, the clock, waiting, metrics, and small values of Kafka's model."""
