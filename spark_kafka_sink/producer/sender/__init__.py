"""The sender: sends batches to their leaders, handles Produce responses, runs callbacks."""
