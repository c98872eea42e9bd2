"""The loop that takes batches from the accumulator to their leaders and brings the verdicts back."""
