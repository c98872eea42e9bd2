"""Receipts of written batches: written to a receiptsPath, and read back for programs and for the exporter's metrics."""
