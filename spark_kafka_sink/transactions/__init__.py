"""Kafka's transactions: the states of a producer, its calls to coordinators, and what their answers mean."""
