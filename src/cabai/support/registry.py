"""Families, thresholds and policies are values with a name and a few parameters.

They are written the same way in Python, on the command line and in storage: `ctas`, or with parameters
`ctas(exploration=0.5, tracking=ratio)`. `str` writes this form and `Registry.get` reads it.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from typing import Any, ClassVar, Generic, TypeVar

from cabai.support.own import address_of, load
from cabai.support.validation import InvalidInput, meant, shown


@dataclasses.dataclass(frozen=True)
class Named:
    """A value with a `name`; its dataclass fields are its parameters.

    >>> import cabai
    >>> wide = cabai.families.family_of("gaussian(variance=2)")
    >>> wide.key, wide.address, wide.is_own
    ('gaussian', 'gaussian(variance=2)', False)
    """

    name: ClassVar[str]
    kind: ClassVar[str]  # family, threshold or policy

    def __str__(self) -> str:
        changed = [
            f"{field.name}={_plain(getattr(self, field.name))}"
            for field in dataclasses.fields(self)
            if getattr(self, field.name) != field.default
        ]
        return f"{self.name}({', '.join(changed)})" if changed else self.name

    @property
    def is_own(self) -> bool:
        """Whether it is your own, not one of cabai's."""
        return (type(self).__module__ or "").partition(".")[0] != "cabai"  # none, of a function that exec has made

    @property
    def key(self) -> str:
        """Its name without parameters; for your own, also where it is defined, so that no two are the same."""
        if not self.is_own:
            return self.name
        try:
            return address_of(type(self))
        except InvalidInput:  # defined where nobody else can import it
            return f"{type(self).__module__}:{type(self).__qualname__}"

    @property
    def address(self) -> str:
        """How to write it so that any process finds it: as `str` does or, for your own, with `module:name`."""
        text = str(self)
        return text.replace(self.name, address_of(type(self)), 1) if self.is_own else text


def _plain(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else str(value)


T = TypeVar("T", bound=Named)


class Registry(Generic[T]):
    """All values of one kind, found by name.

    >>> import cabai
    >>> cabai.families.FAMILIES.names
    ['gaussian', 'bernoulli', 'poisson', 'exponential', 'bounded']
    >>> cabai.families.FAMILIES.get("gaussian(variance=2)").variance
    2.0
    """

    def __init__(self, kind: str, *classes: type[T], unlisted: tuple[type[T], ...] = (), hint: str = "") -> None:
        """`unlisted` classes can be found by name too, but are not in the list of names. `hint` is for those who give a
        function."""
        self.kind, self.hint = kind, hint
        self.names = [cls.name for cls in classes]
        self.classes = {cls.name: cls for cls in (*classes, *unlisted)}

    def get(self, given: str | T | type[T]) -> T:
        """Return the given value itself, or the one described by `name` or `name(parameter=value, ...)`.

        A user's own can be given as an object or as `module:name`.
        """
        address, arguments = "", None
        found: Any = given
        if isinstance(given, str):
            match = re.fullmatch(r"\s*([\w-]+|[\w.]+:[\w.]+)\s*(?:\((.*)\))?\s*", given, re.DOTALL)
            if match is None or ":" not in match[1]:
                name = match[1].lower() if match else given
                if match is None or name not in self.classes:
                    raise InvalidInput(f"unknown {self.kind} {shown(given)}; {self._known(name)}")
                return self._build(self.classes[name], match[2] or "")
            address, arguments = match[1], match[2]
            found = load(address, self.kind)
        kind: Any = found if isinstance(found, type) else type(found)
        if issubclass(kind, Named) and kind.kind == self.kind and (arguments is None or kind is found):
            if not isinstance(getattr(kind, "name", None), (str, property)):
                raise InvalidInput(
                    f"the {self.kind} {kind.__qualname__} has no name: give its class one, as in name = 'mine'."
                )
            return self._build(kind, arguments or "") if kind is found else found
        hint = self.hint if inspect.isfunction(found) else ""
        if not address:
            raise InvalidInput(f"{self.kind} must be a name or a {self.kind}, got {shown(given)}.{hint}")
        if hint:
            raise InvalidInput(f"{address!r} is a function, not a {self.kind}.{hint}")
        raise InvalidInput(
            f"{address!r} is not a {self.kind}. To store it or send it to other processes, define it in its "
            "module under its own name: see docs/own.md."
        )

    def _known(self, name: str) -> str:
        known = f"known: {', '.join(self.names)}. Or your own, module:name."
        return " ".join(filter(None, [meant(name, self.names), known]))

    def _build(self, cls: type[T], arguments: str) -> T:
        allowed = {field.name: field for field in dataclasses.fields(cls)}
        values: dict[str, Any] = {}
        for argument in filter(None, (part.strip() for part in split_outside_brackets(arguments))):
            key, equals, text = (piece.strip() for piece in argument.partition("="))
            if not equals or key not in allowed or key in values:
                known = f"its parameters: {', '.join(allowed) or 'none'}."
                guess = " ".join(filter(None, ["" if key in allowed else meant(key, allowed), known]))
                raise InvalidInput(f"{self.kind} {cls.name} cannot take {argument!r}; {guess}")
            values[key] = _read(text)
        return cls(**values)


def split_outside_brackets(text: str) -> list[str]:
    """Split at commas, except within brackets.

    >>> split_outside_brackets("co, ctas(exploration=1, tracking=ratio)")
    ['co', ' ctas(exploration=1, tracking=ratio)']
    """
    return re.split(r",(?![^(]*\))", text)


def _read(text: str) -> Any:
    """Read a parameter: a number, true, false, none, or a word."""
    words = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text.strip("'\"")
