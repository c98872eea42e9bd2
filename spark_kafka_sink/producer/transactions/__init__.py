"""Sequences, the states of a transactional producer, and its requests to coordinators."""
