"""Confluent's Schema Registry: its options, subjects, schemas and ids. Blocking HTTP calls, each with a deadline."""
