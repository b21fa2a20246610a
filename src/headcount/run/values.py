"""Values of settings: by dotted name, as one types them, and checked against the annotations of constructors."""

import inspect
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from headcount.errors import printable

AS_TRAINED = "as_trained"  # the value of a setting of the search that nobody has given: that of the run
NAMES = {int: "a whole number", float: "a number", bool: "true or false", str: "text", Path: "a path", NoneType: "null"}
KINDS = {
    Mapping: "names with values, {name: value}",
    Callable: "an option of its group, which GROUP/NAME=OPTION chooses",
}


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings by dotted name: {"a": {"b": 1}} as {"a.b": 1}. Lists and empty groups are values."""
    flat: dict[str, Any] = {}
    for name, value in tree.items():
        if isinstance(value, Mapping) and value:
            flat |= flatten(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = value
    return flat


def nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that `flatten` gives, as groups again."""
    tree: dict[str, Any] = {}
    for name, value in flat.items():
        node = tree
        *groups, last = name.split(".")
        for group in groups:
            node = node.setdefault(group, {})
        node[last] = value
    return tree


def at(tree: Any, path: str) -> Any:
    """The value at a dotted name; None if there is none."""
    for name in path.split("."):
        if not isinstance(tree, Mapping) or name not in tree:
            return None
        tree = tree[name]
    return tree


def named_by(override: str) -> str:
    """The setting of an override, such as model.dropout of ++model.dropout=0."""
    return override.lstrip("+~").partition("=")[0]


def within(name: str, groups: Collection[str]) -> bool:
    """Whether a dotted name is one of `groups`, or below one."""
    return any(name == group or name.startswith(f"{group}.") for group in groups)


def typed(value: Any) -> str:
    """A value as one types it on the command line, in one line."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{','.join(map(typed, value))}]"
    return printable(str(value))


def wrong_values(function: Callable[..., Any], values: Mapping[str, Any], setting: Callable[[str], str]) -> list[str]:
    """A line for every value that `function` has no parameter for, or that cannot be what it declares there.

    values: by parameter; objects (dicts) are left alone. setting: from the parameter's name to the setting's.
    """
    try:
        hints = get_type_hints(function.__init__ if inspect.isclass(function) else function)
    except (TypeError, NameError):  # somebody else's code, annotated with what only a type checker sees
        return []
    parameters = inspect.signature(function).parameters.values()
    known = [parameter.name for parameter in parameters]
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        known += values
    unknown = [
        f"{setting(name)}: no such setting; there are {', '.join(known)}"
        for name in values
        if name not in known and not str(name).startswith("_")  # such as _target_, which are Hydra's
    ]
    return unknown + [
        f"{setting(name)}={typed(value)}: must be {_say(hints[name])}"
        for name, value in values.items()
        if name in hints and not isinstance(value, dict) and not fits(value, hints[name])
    ]


def fits(value: Any, hint: Any) -> bool:
    """Whether a value as YAML gives it may go where `hint` is declared."""
    return any(_is(value, member) for member in _members(hint))


def _members(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def _is(value: Any, kind: Any) -> bool:
    if kind is Any:
        return True
    if get_origin(kind) is Literal:
        return value in get_args(kind)
    if isinstance(value, list):
        return any(all(fits(element, hint) for element in value) for hint in get_args(kind))
    if isinstance(value, bool) or kind is bool:  # to Python a bool is an int, to a reader it is not
        return isinstance(value, bool) and kind is bool
    if kind is float:
        return isinstance(value, int | float)
    if kind is Path:
        return isinstance(value, str)
    return inspect.isclass(kind) and isinstance(value, kind)


def _say(hint: Any) -> str:
    words = []
    for member in _members(hint):
        if get_origin(member) is Literal:
            words += [str(choice) for choice in get_args(member)]
        elif member in NAMES:
            words.append(NAMES[member])
        elif get_args(member):
            words.append(KINDS.get(get_origin(member), "a list"))
    return " or ".join(dict.fromkeys(words))
