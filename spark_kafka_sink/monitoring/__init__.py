"""Receipts read back: from a topic or a folder, as totals for metrics, as the history of a query."""
