"""Dead letters: rows that cannot be written as they are, and what becomes of them."""
