"""The connection check: which step to the brokers works, what the principal may do. It writes nothing, except
``exactly_once_trial``."""
