"""Queues of batches per partition, and the memory that they may use."""
