"""The command line, the connection check, the selftest and the exporter."""
