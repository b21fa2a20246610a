"""Reports on finished runs: tables, plots, verdicts, and their statistics."""

from headcount.errors import InputError

try:
    import jinja2  # noqa: F401
    import matplotlib  # noqa: F401
    import scipy  # noqa: F401
except ImportError as error:
    raise InputError(
        f"{error.name} is not installed, which reports and drawings need: pip install -e .[report]"
    ) from error
