"""Dataclasses that are cheap to define.

Python writes and compiles methods for each dataclass, and a short command spent a tenth of its time on three
hundred of them. Here `__init__` is compiled when an instance is first made, and classes share the methods
that are not called in great numbers. Only the type checker, which sees the standard library's `dataclass`,
refuses to assign to the fields of frozen ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:
    import dataclasses

    def dataclass(cls=None, /, *, frozen=False, eq=True, **options):
        if cls is None:
            return lambda cls: dataclass(cls, frozen=frozen, eq=eq, **options)
        cls.__doc__ = cls.__doc__ or cls.__name__  # the standard library would work out its signature
        cls.__repr__ = _repr
        if eq:
            cls.__eq__, cls.__hash__ = _eq, _hash if frozen else None
        dataclasses.dataclass(cls, eq=False, repr=False, init=False, **options)

        def compile_first(self, *values, **named):
            cls.__init__ = _compiled_init(cls)
            cls.__init__(self, *values, **named)

        cls.__init__ = compile_first
        return cls

    def _compiled_init(cls):
        """Return the `__init__` that the standard library would have made: it takes five times as long."""
        defaults, parameters, body = {}, {False: ["self"], True: ["*"]}, ["pass"]
        for field in dataclasses.fields(cls):
            name, default = field.name, f"_{field.name}"
            makes = field.default_factory is not dataclasses.MISSING
            defaults[default] = field.default_factory if makes else field.default
            has_default = defaults[default] is not dataclasses.MISSING
            parameters[field.kw_only].append(f"{name}={default}" if has_default else name)
            body.append(f"self.{name} = {f'{default}() if {name} is {default} else ' if makes else ''}{name}")
        named = parameters[True] if len(parameters[True]) > 1 else []
        source = f"def __init__({', '.join(parameters[False] + named)}): {'; '.join(body)}"
        # To compile text, exec forgets that Ctrl-C ends the program, which then exits with 1.
        exec(compile(source, "<string>", "exec"), defaults)
        defaults["__init__"].__qualname__ = f"{cls.__qualname__}.__init__"
        return defaults["__init__"]

    def _values(one):
        return tuple([getattr(one, name) for name in one.__dataclass_fields__])

    def _repr(self):
        shown = (name for name, field in self.__dataclass_fields__.items() if field.repr)
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in shown)
        return f"{type(self).__qualname__}({fields})"

    def _eq(self, other):
        return _values(self) == _values(other) if type(other) is type(self) else NotImplemented

    def _hash(self):
        return hash(_values(self))
