"""The command line and what only it uses: the connection check and the demo."""
