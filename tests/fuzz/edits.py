"""Changes of a file's bytes: made at random, or written out as bytes that hypothesis shrinks."""

import random
from dataclasses import dataclass

KINDS = ("flip", "set", "insert", "delete", "repeat", "cut", "number", "digits", "splice")

# Sizes, signs and marks that readers trip over.
_NUMBERS = [0, 1, 2, 255, 256, 0x7FFF, 0xFFFF, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**64 - 1]
_DIGITS = [
    *b"0 -1 1 1e309 -0.0 99999999999 4294967296 NaN 1e-400".split(),
    b"9" * 500,
    *b'null true "x" [] {} 1.5 1000000 -9223372036854775809'.split(),
]
_TEXTS = [
    *(b"../../../../etc/passwd", b"/etc/passwd", b"\x00", b"\xff\xfe", b"\n", b"\r\n", b'"'),
    *(b"\\u0000", b"=cmd|' /C calc'!A0", b"<script>alert(1)</script>", b"\x1b[31m"),
    *(b"\xf0\x9f\x98\x80", b"," * 50, b"[" * 3000, b"{" * 3000, b"(" * 300, b"'" * 3),
    *(b"\xed\xa0\x80", b"bytearray", b"builtins", b"os"),
]


@dataclass(frozen=True)
class Edit:
    """One change: its kind, where (as a share of the length), how long, and a number to draw by."""

    kind: str
    where: float
    length: int
    value: int

    def apply(self, data: bytes, other: bytes) -> bytes:
        """Return the changed bytes; `other` is a second sound file to take parts of."""
        at = int(self.where * len(data))
        end = min(len(data), at + self.length)
        match self.kind:
            case "flip":
                flipped = bytes(b ^ (1 << self.value % 8) for b in data[at : at + 1])
                return data[:at] + flipped + data[at + 1 :]
            case "set":
                return data[:at] + bytes([self.value % 256]) + data[at + 1 :]
            case "insert":
                return data[:at] + _TEXTS[self.value % len(_TEXTS)] + data[at:]
            case "delete":
                return data[:at] + data[end:]
            case "repeat":
                return data[:end] + data[at:end] * (1 + self.value % 20) + data[end:]
            case "cut":
                return data[:at]
            case "number":
                size = (1, 2, 4, 8)[self.value % 4]
                number = _NUMBERS[self.value // 4 % len(_NUMBERS)] % (1 << 8 * size)
                packed = number.to_bytes(size, "little")
                packed = packed if self.length % 2 else packed[::-1]
                return data[:at] + packed + data[at + size :]
            case "digits":
                return _with_digits(data, at, _DIGITS[self.value % len(_DIGITS)])
        begin = self.value % max(1, len(other))
        return data[:at] + other[begin : begin + self.length] + data[end:]


def _with_digits(data: bytes, at: int, number: bytes) -> bytes:
    """Put another number in the place of the next one that is written out."""
    start = next((i for i in range(at, min(len(data), at + 400)) if chr(data[i]).isdigit()), None)
    if start is None:
        return data[:at] + number + data[at:]
    end = start
    while end < len(data) and data[end : end + 1] in b"0123456789.eE+-":
        end += 1
    return data[:start] + number + data[end:]


def random_edits(draws: random.Random) -> list[Edit]:
    """Return one to five edits."""

    def edit() -> Edit:
        kind, where = KINDS[draws.randrange(len(KINDS))], draws.random()
        return Edit(kind, where, 1 << draws.randrange(8), draws.getrandbits(32))

    return [edit() for _ in range(1 + draws.randrange(5))]


CODE_BYTES = 3 + 5 * 8
"""How long the code of one changed file is: two files and the number of edits, then five edits."""


def decoded_case(code: bytes, seeds: list[bytes]) -> bytes:
    """Return the changed file that a code stands for; all zeros: the first file as it is."""
    data, other = seeds[code[1] % len(seeds)], seeds[code[2] % len(seeds)]
    parts = [code[3 + 8 * i : 11 + 8 * i] for i in range(code[0] % 6)]
    return edited(data, [_decoded_edit(part) for part in parts], other)


def _decoded_edit(code: bytes) -> Edit:
    where = int.from_bytes(code[1:3]) / 65536
    return Edit(KINDS[code[0] % len(KINDS)], where, 1 << code[3] % 8, int.from_bytes(code[4:8]))


def edited(data: bytes, edits: list[Edit], other: bytes) -> bytes:
    """Apply edits, one after another."""
    for edit in edits:
        data = edit.apply(data, other)
    return data
