"""Decoding: search methods, and the translator around them. A model is known only by the protocol in `search`."""
