"""A script that ends the program of whoever imports it."""

import sys

sys.exit(3)
