"""Statistics of a study: bootstrap, simultaneous inference, comparison of rows, moderated variances, power."""
