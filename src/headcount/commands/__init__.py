"""Commands: a module each, whose `run(config)` returns the text for standard output. It is imported when it is called."""
