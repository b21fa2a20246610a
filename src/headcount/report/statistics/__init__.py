"""Statistics of a study: bootstrap, simultaneous comparison of rows, moderated variances, power and its simulation."""
