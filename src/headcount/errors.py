"""InputError: wrong input, in one line that says what to do."""


class InputError(ValueError):
    """A file, setting or option cannot be used.

    The message is one line: what was wrong, where (file and line number, or the setting's name), what is allowed,
    what to do. Scripts print it without a traceback and exit with code 2.
    """
