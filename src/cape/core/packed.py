"""Limits on msgpack bytes, checked before anything is decoded.

Claim. Bytes that pass `require` hold at most so many values, nested at most so deep, and no text longer than
the limit; the check takes constant memory for each level, and no more steps than there may be values.
Reason. One walk over the heads of values: a list says how many entries follow, a text or bytes how long they
are. A head that announces more than is allowed, or more than there is, ends the walk. Decoded bytes take as
much memory as on the wire; a list of tiny values takes dozens of times that, and a text up to five times.
Tested in tests/unit/core/test_packed.py, against the decoder.
"""

from __future__ import annotations

from cape.core.errors import BadMessage

__all__ = ["require"]

_TEXT, _BYTES, _LIST, _MAP = range(4)
_LONG = {  # head -> kind of value, and how many bytes hold its length
    0xC4: (_BYTES, 1),
    0xC5: (_BYTES, 2),
    0xC6: (_BYTES, 4),
    0xD9: (_TEXT, 1),
    0xDA: (_TEXT, 2),
    0xDB: (_TEXT, 4),
    0xDC: (_LIST, 2),
    0xDD: (_LIST, 4),
    0xDE: (_MAP, 2),
    0xDF: (_MAP, 4),
}
_FIXED = {0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8}


def require(data: bytes | bytearray | memoryview, *, values: int, depth: int, text: int) -> None:
    """Raise `BadMessage` unless this is one packed value within the limits.

    Args:
        data: the message.
        values: how many values there may be, counting each list and each key of a map.
        depth: how deep lists and maps may be nested.
        text: bytes of the longest text.
    """
    view = memoryview(data)
    size, at, left = len(view), 0, values
    due = [1]  # how many values remain at each level
    while due:
        if not due[-1]:
            due.pop()
            continue
        due[-1] -= 1
        left -= 1
        if left < 0:
            raise BadMessage(f"a message of its kind has at most {values} values")
        if at >= size:
            raise BadMessage("the message is cut off")
        head = view[at]
        at += 1
        if head < 0x80 or head >= 0xE0 or head in (0xC0, 0xC2, 0xC3):
            continue
        if head in _FIXED:
            at += _FIXED[head]
            continue
        if head < 0x90:
            kind, count = _MAP, head & 0x0F
        elif head < 0xA0:
            kind, count = _LIST, head & 0x0F
        elif head < 0xC0:
            kind, count = _TEXT, head & 0x1F
        elif head in _LONG:
            kind, width = _LONG[head]
            count = int.from_bytes(view[at : at + width], "big")
            at += width
        else:  # extensions, which no message of ours has
            raise BadMessage("the message has values of an unknown kind")
        if kind == _TEXT and count > text:
            raise BadMessage(f"a text in a message of its kind has at most {text} bytes")
        if kind in (_TEXT, _BYTES):
            at += count
            continue
        count *= 1 if kind == _LIST else 2
        if count > left:
            raise BadMessage(f"a message of its kind has at most {values} values")
        if len(due) > depth:
            raise BadMessage(f"a message of its kind is nested at most {depth} deep")
        due.append(count)
    if at != size:
        raise BadMessage("the message is cut off, or something follows it")
