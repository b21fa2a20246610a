"""Design of a study: what it compares, as the node `study` of a config says."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from headcount.errors import InputError
from headcount.run.values import at, wrong_values

DESIGN = "study"  # the node of a config that describes the study


@dataclass(frozen=True)
class Design:
    """What a study compares; without the node `study`, all None or empty.

    varies: the setting whose values are the rows. label: its name in tables and plots. constant: figures that the study
    claims to be equal in all rows. published: keys of published.yaml.
    """

    title: str | None = None
    varies: str | None = None
    label: str | None = None
    constant: tuple[str, ...] = ()
    about: str | None = None
    published: tuple[str, ...] = ()

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> "Design":
        """The design that a config describes. Raises InputError with a line for each value of another type."""
        node = at(config, DESIGN) or {}
        if not isinstance(node, Mapping):
            raise InputError(f"{DESIGN}: must be a group of settings; choose an option of conf/{DESIGN}")
        known = {field.name: node[field.name] for field in fields(cls) if node.get(field.name) is not None}
        groups = [
            f"{DESIGN}.{name}: must not be a group" for name, value in known.items() if isinstance(value, Mapping)
        ]
        if wrong := groups + wrong_values(cls, known, lambda name: f"{DESIGN}.{name}"):
            raise InputError("\n".join(wrong))
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in known.items()
        }
        if "varies" in values:
            values["label"] = values.get("label") or values["varies"].rpartition(".")[2]
        return cls(**values)
