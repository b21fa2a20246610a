"""From a directory of runs to a page that says what they show, and how sure that is."""
