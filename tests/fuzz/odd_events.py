"""Arrays of events with values that writers of traces get wrong, and texts that look like credentials.

They are small, and what is odd in them is what the compiled modules decide on: a target that takes less than
a millisecond can be given a million of them.
"""

from __future__ import annotations

import random

from tests.trace.credentials import planted

NUMBERS = [
    *(
        "0",
        "-0",
        "7",
        "-7",
        "007",
        "1.",
        ".5",
        "1.0",
        "1.5",
        "-1.5",
        "1e3",
        "1E-3",
        "1e400",
        "+1",
        "0x1f",
        "NaN",
    ),
    *("2147483648", "9223372036854775807", "9223372036854775808", "-9223372036854775808", "1" * 19, "1" * 40),
    *(
        '"7"',
        '"-7"',
        '"007"',
        '" 7"',
        '"7.5"',
        '"1e3"',
        '""',
        '"a"',
        '"7',
        "null",
        "true",
        "nul",
        "[7]",
        "{}",
    ),
    *("0.0005", "0.0015", "0.0025", "1.0004999", "1.0005001", "1.00049999999", "300000000.00051"),
    *("274877906944.0006", "1704161511420306.491", '"1704161511420306.4915"', "2199023255553.9995", "1" * 16),
]
TEXTS = [
    *(
        '"a"',
        '""',
        r'"a\"b"',
        r'"\\"',
        r'"\/"',
        r'"\b\f\n\r\t"',
        r'"\u00e9\u20ac"',
        r'"\u0000"',
        r'"\ud83d\ude00"',
    ),
    *(
        r'"\ud83d"',
        r'"\x"',
        r'"\u12g4"',
        '"é€😀"',
        '"a\x00b"',
        '"a\nb"',
        '"\x7f"',
        "7",
        "-7",
        "-0",
        "7.50",
        "1e5",
    ),
    *("true", "false", "null", "[]", "{}", "[ 1, -2 ,\n[3]]", '["a", "b c"]', r'["a\n", "\/"]', "[1.0, 1e5]"),
    *(
        "[-0]",
        '{"a": [1, {"b": null}], "a": true}',
        "[1,]",
        "[1",
        "[[" * 40 + "]]" * 40,
        '"' + "é" * 9_000 + '"',
    ),
    *("[" + ", ".join(["123"] * 200) + "]", "N/A", "'a'", "12345678901234567890", "[12345678901234567890]"),
]
EVENT_KEYS = {
    "ts": NUMBERS,
    "dur": NUMBERS,
    **dict.fromkeys(("ph", "cat", "name", "pid", "tid", "args", "x"), TEXTS),
}
ARGUMENT_KEYS = {
    **dict.fromkeys(
        ("correlation", "Bytes", "bytes", "Addr", "device", "blocks per SM", "warps per SM"), NUMBERS
    ),
    **dict.fromkeys(
        ("Call stack", "Input Dims", "Input type", "Concrete Inputs", "grid", "dtype", "y"), TEXTS
    ),
}
CATEGORIES = ("cpu_op", "kernel", "gpu_memcpy", "cuda_sync")


def event_with(key: str, value: str, category: str, *, argument: bool) -> str:
    """Make an event with one more entry, which may be a second one of its key."""
    arguments = '"External id": 5, "grid": [2, 1, 1], "block": [32, 1, 1], "Collective name": "allreduce"'
    name = "ncclDevKernel_AllReduce" if category == "kernel" else "aten::conv2d"
    entry = f'"{key}": {value}'
    plain = {
        "ph": '"X"',
        "cat": f'"{category}"',
        "name": f'"{name}"',
        "pid": "7",
        "tid": "8",
        "ts": "5",
        "dur": "2",
    }
    if not argument:
        plain.pop(key, None)
    entries = [f'"{own}": {text}' for own, text in plain.items()]
    entries += [] if argument or key == "args" else [entry]
    arguments = f"{{{arguments}, {entry}}}" if argument else value if key == "args" else f"{{{arguments}}}"
    return "{" + ", ".join([*entries, f'"args": {arguments}']) + "}"


def odd_array(draw: random.Random) -> bytes:
    """Return an array of some events, which may be damaged."""
    events = []
    for _ in range(draw.randint(1, 3)):
        argument = draw.random() < 0.6
        key, values = draw.choice(list((ARGUMENT_KEYS if argument else EVENT_KEYS).items()))
        events.append(event_with(key, draw.choice(values), draw.choice(CATEGORIES), argument=argument))
    text = f"[{draw.choice((', ', ',', ' ,')).join(events)}]".encode("utf-8", "surrogatepass")
    return _damaged(text, draw, _MARKS) if draw.random() < 0.4 else text


_PLANTED = [part.encode() for one, secret in planted.TEXTS for part in [*one.split("{s}"), secret] if part]


def odd_text(draw: random.Random) -> bytes:
    """Return a text of parts in which credentials are looked for."""
    parts = [draw.choice(draw.choice((_PLANTED, _BETWEEN, _BETWEEN))) for _ in range(12)]
    parts += [bytes(draw.choices(b"aZ09_-. ", k=draw.choice((1, 7, 60, 100)))) for _ in range(3)]
    draw.shuffle(parts)
    text = b"".join(part.upper() if draw.random() < 0.1 else part for part in parts)
    return _damaged(text, draw, _BETWEEN) if draw.random() < 0.3 else text


def _damaged(text: bytes, draw: random.Random, marks: tuple[bytes, ...]) -> bytes:
    """Put something in, take something out, or cut the text off, once or twice."""
    for _ in range(draw.randint(1, 2)):
        at = draw.randrange(len(text) + 1)
        put = draw.choice(marks) if draw.random() < 0.7 else draw.randbytes(draw.randint(1, 4))
        text = text[:at] + put + text[at + draw.choice((0, 0, 1, 3, len(text))) :]
    return text


_MARKS = (
    b'"',
    b"\\",
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b" ",
    b"0",
    b"-",
    b"e",
    b".",
    b"\x00",
    b"\xff",
    b"\xed\xa0\x80",
    b"\\u",
)
_BETWEEN = (
    *(
        b"=",
        b":",
        b",",
        b" ",
        b"\t",
        b"\n",
        b'"',
        b"'",
        b"`",
        b"\\",
        b'\\"',
        b'": "',
        b"': '",
        b"://",
        b"@",
        b"/",
        b"<",
        b">",
    ),
    *(
        b"--",
        b"%3D",
        b"%2F",
        b"%22",
        b"\\u003d",
        b"\\u0022",
        b"\\u0041",
        b"&quot;",
        b"&#34;",
        b";",
        b"&",
        b"|",
        b"?",
        b"+",
    ),
    *(b"string", b")", b"]", b"::", b"=>", b"\x00", b"\xff", "é".encode()),
)
