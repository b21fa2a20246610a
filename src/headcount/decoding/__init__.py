"""Search for the best translation, and the translator around it. Knows a model only by the calls it makes to it."""
