"""Receipts of written batches, read back: for a program, as the history of a query, as metrics of an exporter."""
