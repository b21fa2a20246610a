"""The one exception that means: the input was wrong, and here is what to do."""


class InputError(ValueError):
    """Something a person gave (file, setting, option) cannot be used.

    The message is one line: what was wrong, where (file and line number, or the setting's name), what is allowed,
    what to do. Scripts print it without a traceback and exit with code 2.
    """
