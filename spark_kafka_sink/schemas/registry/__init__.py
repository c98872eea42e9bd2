"""Confluent's Schema Registry: its options, subjects, schemas and ids. Its HTTP calls block, each until a deadline."""
