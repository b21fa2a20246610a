"""Commands: a module each, imported when it is called; `run(config)` returns the text for standard output."""
