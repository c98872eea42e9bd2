"""The base of all packages: options, codecs, the clock, waiting, metrics, and small values of Kafka's model."""
