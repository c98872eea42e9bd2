"""Logins: SASL mechanisms, and the threads that fetch their credentials."""
