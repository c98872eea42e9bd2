"""Where the callers' rows wait for the sender: queues of batches per partition, and the memory they may take."""
