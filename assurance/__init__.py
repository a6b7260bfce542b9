"""Attacks on the product itself: bad input, load, kills, supply chain. See `python -m assurance --help`."""
