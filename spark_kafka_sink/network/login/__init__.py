"""SASL mechanisms and the options they need; tokens and tickets, and the threads that fetch them."""
