"""Names of variables and functions in C and C++: those of the script, where the language leaves them free."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from hidet.gpu.codegen.dialect import ReservedNames
from hidet.ir.func import Function

_CPP = """
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t char32_t class compl const
    const_cast constexpr continue decltype default delete do double dynamic_cast else enum explicit export extern false
    float for friend goto if inline int long mutable namespace new noexcept not not_eq nullptr operator or or_eq private
    protected public register reinterpret_cast return short signed sizeof static static_assert static_cast struct switch
    template this thread_local throw true try typedef typeid typename union unsigned using virtual void volatile wchar_t
    while xor xor_eq"""

CPP_WORDS = frozenset(re.findall(r"\w+", _CPP))
"""Keywords of C++, with those of C."""


class CNames:
    """Names of variables: their own where possible, else with a number, one a variable.

    reserved: names that are not free. taken: names of other things. given: the names of this table.
    """

    def __init__(self, reserved: ReservedNames, taken: Iterable[str] = ()) -> None:
        self._reserved = reserved
        self._names: dict[object, str] = {}
        self._used: set[str] = set(taken)
        self.given: set[str] = set()

    def __call__(self, thing: object, wanted: str) -> str:
        """The name of `thing`, made from `wanted` when it has none yet."""
        known = self._names.get(thing)
        if known is None:
            known = self._names[thing] = self.fresh(wanted)
        return known

    def __contains__(self, thing: object) -> bool:
        """Whether `thing` has a name."""
        return thing in self._names

    def fresh(self, wanted: str) -> str:
        """A name nothing else has."""
        plain = _plain(wanted) or "value"
        plain = f"_{plain}" if plain[0].isdigit() else plain
        plain = f"value_{plain}" if self._reserved.macros.fullmatch(plain) else plain
        name, number = plain, 1
        while name in self._used or name in self._reserved.words:
            number += 1
            name = f"{plain}_{number}"
        self._used.add(name)
        self.given.add(name)
        return name

    def hidden(self, lines: Iterable[str]) -> frozenset[str]:
        """Functions that the lines call and cannot reach, because a variable has their name."""
        return frozenset(name for line in lines for name in _CALLED.findall(line) if name in self.given)


_CALLED = re.compile(r"\b([A-Za-z_]\w*)[(<]")


def _plain(name: str) -> str:
    """A name with an underscore for each letter that C does not have; different names may become equal."""
    return re.sub(r"\W", "_", name, flags=re.ASCII)


def function_names(functions: Iterable[Function], reserved: ReservedNames) -> Mapping[str, str]:
    """The names of functions by those in the module, no two equal: the same where C has letters for it and the compiler
    declares none like it, else after `script_`."""
    own = [function.name for function in functions]
    names = {name: name for name in own if _plain(name) == name and not reserved.declared.fullmatch(name)}
    used = set(names)
    for name in own:
        if name not in names:
            found = f"script_{_plain(name)}"
            while found in used:
                found = f"script_{found}"
            names[name] = found
            used.add(found)
    return names
