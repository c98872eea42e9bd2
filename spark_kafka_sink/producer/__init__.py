"""The producer: rows and records in, receipts and futures out."""
