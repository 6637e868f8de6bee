"""Parser for topic patterns, which use the syntax of RE2.

    pattern     = alternative { '|' alternative }
    alternative = { repeated }
    repeated    = single { '*' | '+' | '?' | '{n}' | '{n,}' | '{n,m}' [ '?' ] }
    single      = character | '.' | '[' class ']' | '(' pattern ')' | '^' | '$' | escape

Topic names use few characters, so a set of characters is an integer with one bit per character.
Escapes and classes of other characters are accepted, and match nothing.

Deviations from RE2: no `\\C`; Unicode classes contain only their ASCII characters.
"""

from __future__ import annotations

import string
from typing import NamedTuple

ALPHABET = string.ascii_letters + string.digits + string.punctuation + " "
ALL = (1 << len(ALPHABET)) - 1
BIT = {character: 1 << index for index, character in enumerate(ALPHABET)}


def _set(characters: str) -> int:
    return sum(BIT.get(character, 0) for character in dict.fromkeys(characters))


_DIGITS = _set(string.digits)
_UPPER, _LOWER = _set(string.ascii_uppercase), _set(string.ascii_lowercase)
WORD = _DIGITS | _UPPER | _LOWER | _set("_")
_PERL = {"d": _DIGITS, "w": WORD, "s": _set(" ")}
_POSIX = {
    "alnum": _DIGITS | _UPPER | _LOWER, "alpha": _UPPER | _LOWER, "ascii": ALL, "blank": _set(" "),
    "cntrl": 0, "digit": _DIGITS, "graph": ALL & ~_set(" "), "lower": _LOWER, "print": ALL,
    "punct": _set(string.punctuation), "space": _set(" "), "upper": _UPPER, "word": WORD,
    "xdigit": _set(string.hexdigits),
}  # fmt: skip
_UNICODE = {
    "L": _UPPER | _LOWER, "Lu": _UPPER, "Ll": _LOWER, "N": _DIGITS, "Nd": _DIGITS,
    "P": _set("!\"#%&'()*,-./:;?@[\\]_{}"), "Pd": _set("-"), "Pc": _set("_"),
    "Po": _set("!\"#%&'*,./:;?@\\"), "Ps": _set("([{"), "Pe": _set(")]}"),
    "S": _set("$+<=>^`|~"), "Sm": _set("+<=>|~"), "Sc": _set("$"), "Sk": _set("^`"),
    "Z": _set(" "), "Zs": _set(" "),
    "Latin": _UPPER | _LOWER, "Common": ALL & ~(_UPPER | _LOWER), "Any": ALL,
}  # fmt: skip
_ESCAPED = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}

MAX_REPEAT = 1_000
MAX_DEPTH = 100


class InvalidPattern(ValueError):
    """An invalid pattern. The message says what is wrong with it."""


# -------------------------------------------------------------------------------------- syntax tree


class Chars(NamedTuple):
    mask: int


class Edge(NamedTuple):
    """A zero-width assertion: `^`, `$`, a word boundary `b`, or its negation `B`."""

    kind: str


class Cat(NamedTuple):
    parts: tuple[PatternNode, ...]


class Alt(NamedTuple):
    parts: tuple[PatternNode, ...]


class Repeat(NamedTuple):
    part: PatternNode
    low: int
    high: int | None


PatternNode = Chars | Edge | Cat | Alt | Repeat


class Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._fold = False
        self._depth = 0

    def parse(self) -> PatternNode:
        node = self._pattern()
        if self._at < len(self._text):
            raise InvalidPattern("unexpected )")
        return node

    # ------------------------------------------------------------------------------- structure

    def _peek(self, count: int = 1) -> str:
        return self._text[self._at : self._at + count]

    def _next_character(self) -> str:
        if self._at >= len(self._text):
            raise InvalidPattern("it ends too early")
        self._at += 1
        return self._text[self._at - 1]

    def _accept(self, text: str) -> bool:
        if self._text.startswith(text, self._at):
            self._at += len(text)
            return True
        return False

    def _pattern(self) -> PatternNode:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise InvalidPattern("nested too deeply")
        parts = [self._alternative()]
        while self._accept("|"):
            parts.append(self._alternative())
        self._depth -= 1
        return parts[0] if len(parts) == 1 else Alt(tuple(parts))

    def _alternative(self) -> PatternNode:
        parts: list[PatternNode] = []
        while self._peek() not in ("", "|", ")"):
            if self._accept("\\Q"):
                literal, _, rest = self._text[self._at :].partition("\\E")
                parts += (self._literal(character) for character in literal)
                self._at = len(self._text) - len(rest)
                continue
            node = self._single()
            if node is not None:
                parts.append(self._repeated(node))
        return Cat(tuple(parts))

    def _repeated(self, node: PatternNode) -> PatternNode:
        has_repeat = False
        while True:
            start = self._at
            bounds = self._bounds()
            if bounds is None:
                return node
            if has_repeat:
                raise InvalidPattern(f"bad repetition operator: {self._text[start - 1 : self._at]}")
            self._accept("?")
            has_repeat = True
            node = Repeat(node, *bounds)

    def _bounds(self) -> tuple[int, int | None] | None:
        for operator, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._accept(operator):
                return bounds
        return self._counted() if self._peek() == "{" else None

    def _counted(self) -> tuple[int, int | None] | None:
        """Parse `{n}`, `{n,}` or `{n,m}`; return None if the brace is a literal."""
        content, closed, _ = self._text[self._at + 1 :].partition("}")
        low, comma, high = content.partition(",")
        if not closed or not _is_number(low) or (comma and high and not _is_number(high)):
            return None
        self._at += len(content) + 2
        least = int(low)
        most = (int(high) if high else None) if comma else least
        if least > MAX_REPEAT or (most is not None and not least <= most <= MAX_REPEAT):
            raise InvalidPattern(f"invalid repeat count: {{{content}}}")
        return least, most

    # ----------------------------------------------------------------------------------- single

    def _single(self) -> PatternNode | None:
        """Parse one element; return None for flags, which apply to what follows."""
        character = self._next_character()
        if character == "(":
            return self._group()
        if character == "[":
            return Chars(self._class())
        if character == ".":
            return Chars(ALL)
        if character in "^$":
            return Edge(character)
        if character == "\\":
            return self._escape()
        if character in "*+?":
            raise InvalidPattern(f"missing argument to repetition operator: {character}")
        return self._literal(character)

    def _literal(self, character: str) -> PatternNode:
        return Chars(self._folded(_set(character)))

    def _folded(self, mask: int) -> int:
        if not self._fold:
            return mask
        letters = "".join(each for each in ALPHABET if BIT[each] & mask)
        return mask | _set(letters.swapcase())

    def _group(self) -> PatternNode | None:
        fold = self._fold
        if self._accept("?"):
            if self._accept("P<") or (self._peek() == "<" and self._peek(2) not in ("<=", "<!")):
                self._accept("<")
                self._name()
            elif self._flags():
                return None
        node = self._pattern()
        if not self._accept(")"):
            raise InvalidPattern("missing closing )")
        self._fold = fold
        return node

    def _name(self) -> None:
        name, closed, _ = self._text[self._at :].partition(">")
        if not closed or not name or not all(BIT.get(each, 0) & WORD for each in name):
            raise InvalidPattern("invalid named capture")
        self._at += len(name) + 1

    def _flags(self) -> bool:
        """Parse flags up to `:` or `)`; return whether `)` ended it, so that they persist."""
        value = is_empty = True
        while True:
            character = self._next_character()
            if character == ")" and not is_empty:
                return True
            if character == ":":
                return False
            if character == "-" and value:
                value = False
            elif character == "i":
                self._fold = value
            elif character not in "msU":
                raise InvalidPattern("invalid or unsupported Perl syntax")
            is_empty = False

    # ----------------------------------------------------------------------------------- escapes

    def _escape(self) -> PatternNode:
        character = self._next_character()
        if character in "AzbB":
            return Edge({"A": "^", "z": "$"}.get(character, character))
        mask = self._perl(character)
        return self._literal(self._coded_character(character)) if mask is None else Chars(mask)

    def _perl(self, character: str) -> int | None:
        if character in "pP":
            name = self._next_character()
            if name == "{":
                name, closed, _ = self._text[self._at :].partition("}")
                if not closed:
                    raise InvalidPattern("invalid character class range")
                self._at += len(name) + 1
            negated = name.startswith("^") != (character == "P")
            mask = _UNICODE.get(name.lstrip("^"))
            if mask is None:
                if not name.lstrip("^").isalpha():
                    raise InvalidPattern(f"invalid character class range: \\{character}{name}")
                mask = 0
            return ALL & ~mask if negated else mask
        if character.lower() in _PERL:
            mask = _PERL[character.lower()]
            return mask if character.islower() else ALL & ~mask
        return None

    def _coded_character(self, character: str) -> str:
        """Return the character that an escape sequence stands for."""
        if character in _ESCAPED:
            return _ESCAPED[character]
        if character == "x":
            return self._hexadecimal()
        if character == "0":
            return "\0"
        if character.isalnum():
            raise InvalidPattern(f"invalid escape sequence: \\{character}")
        return character

    def _hexadecimal(self) -> str:
        if self._accept("{"):
            digits, closed, _ = self._text[self._at :].partition("}")
            self._at += len(digits) + 1
        else:
            digits, closed = self._peek(2), "}"
            self._at += 2
        is_valid = 0 < len(digits) <= 6 and all(each in string.hexdigits for each in digits)
        if not closed or not is_valid or int(digits, 16) > 0x10FFFF:
            raise InvalidPattern("invalid escape sequence: \\x")
        return chr(int(digits, 16))

    # ----------------------------------------------------------------------------------- classes

    def _class(self) -> int:
        negated = self._accept("^")
        mask, is_first = 0, True
        while is_first or self._peek() != "]":
            if self._at >= len(self._text):
                raise InvalidPattern("missing closing ]")
            is_first = False
            mask |= self._class_member()
        self._at += 1
        mask = self._folded(mask)
        return ALL & ~mask if negated else mask

    def _class_member(self) -> int:
        if self._accept("[:"):
            name, closed, _ = self._text[self._at :].partition(":]")
            mask = _POSIX.get(name.lstrip("^"))
            if not closed or mask is None:
                raise InvalidPattern(f"invalid character class range: [:{name}:]")
            self._at += len(name) + 2
            return ALL & ~mask if name.startswith("^") else mask
        first = self._next_character()
        if first == "\\":
            escape = self._next_character()
            perl = self._perl(escape)
            if perl is not None:
                return perl
            first = self._coded_character(escape)
        if self._peek() != "-" or self._peek(2) in ("-]", "-"):
            return _set(first)
        self._at += 1
        last = self._next_character()
        if last == "\\":
            last = self._coded_character(self._next_character())
        if first > last:
            raise InvalidPattern(f"invalid character class range: {first}-{last}")
        return _set("".join(each for each in ALPHABET if first <= each <= last))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 9
