"""The source of every random bit: AES-256 in counter mode under a key from the operating system.

Claim. Without its key, the bytes of a stream are indistinguishable from uniform ones (AES-256 is a
pseudorandom permutation; one stream makes far fewer than 2^64 blocks), and streams forked under different
labels are independent in the same sense.
Reason. A stream never encrypts under its own key: HKDF-SHA256 derives one key for the bytes and one for each
label, so no key serves two purposes and every counter starts at zero under a fresh key. A forked process
draws a secret of its own at once (`os.register_at_fork`); a stream that was started under another secret, or
another process id, takes a new key before it returns a byte. Ids alone are not enough: in a new PID namespace
a child can have its parent's. Neither detects a copy of the process that was made without Python's hooks and
has its id as well, such as a restored virtual machine.
Tested in tests/unit/noise/test_stream.py: known answers, agreement with AES block by block, uniformity,
forks.

Why not a library: `secrets` is one system call per value, and `numpy.random` is not cryptographic.
"""

from __future__ import annotations

import os
import threading
from typing import Any, NoReturn

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand
from numpy.typing import DTypeLike, NDArray

from cape.core import check
from cape.core.errors import InvalidInput

__all__ = ["KEY_BYTES", "SecureStream", "keystream", "require_stream"]

KEY_BYTES = 32
_CHUNK = 1 << 16  # one call of the cipher: large enough to hide its overhead, small enough for cache
_ZEROS = bytes(_CHUNK)


class _Process:
    """What distinguishes this process from the one that it was forked from."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        self._secret = os.urandom(16)
        self.lock = threading.Lock()  # a thread of the parent may have held the old one

    @property
    def mark(self) -> tuple[bytes, int]:
        return self._secret, os.getpid()


_process = _Process()
os.register_at_fork(after_in_child=_process.renew)


class SecureStream:
    """A stream of uniform bytes and integers that cannot be predicted without its key.

    `SecureStream()` takes its key from the operating system. `SecureStream(key)` is reproducible and
    is for tests and for keys that a protocol has agreed; the key is 32 bytes and is used once.

    A stream cannot be copied or pickled, since the copy would repeat its noise. A process forked by the
    operating system re-keys an unkeyed stream for the same reason. Threads may share one.
    """

    def __init__(self, key: bytes | None = None) -> None:
        if key is not None and (not isinstance(key, bytes) or len(key) != KEY_BYTES):
            shown = f"{len(key)} bytes" if isinstance(key, bytes) else type(key).__name__
            raise InvalidInput(f"key must be {KEY_BYTES} bytes or None, not {shown}")
        self._reproducible = key is not None
        self._start(key if key is not None else os.urandom(KEY_BYTES))

    def _start(self, root: bytes) -> None:
        self._root = root
        self._lock = threading.Lock()  # the cipher's state belongs to one thread at a time
        self._labels: set[str] = set()
        self._cipher = keystream(_derive(root, b"bytes"))
        self._process = _process.mark  # last: a thread that sees it also sees the new cipher

    def _leave_the_parent(self) -> None:
        if self._process == _process.mark:
            return
        with _process.lock:
            if self._process == _process.mark:  # another thread was faster
                return
            if not self._reproducible:
                self._start(os.urandom(KEY_BYTES))
            else:
                self._lock, self._process = threading.Lock(), _process.mark

    def fill(self, out: Any) -> None:
        """Overwrite a writable, contiguous buffer (an array, a bytearray) with uniform bytes."""
        try:
            view = memoryview(out).cast("B")
        except (TypeError, ValueError, BufferError):
            view = None
        if view is None or view.readonly:
            raise InvalidInput("out must be a writable, contiguous buffer of plain bytes or numbers")
        self._leave_the_parent()
        size = len(view)
        whole = size - size % _CHUNK
        with self._lock:
            update_into = self._cipher.update_into
            for start in range(0, whole, _CHUNK):
                update_into(_ZEROS, view[start : start + _CHUNK])
            if whole < size:
                update_into(_ZEROS[: size - whole], view[whole:])

    def bytes(self, count: int) -> bytes:
        """Return `count` uniform bytes."""
        out = bytearray(check.integer("count", count, least=0))
        self.fill(out)
        return bytes(out)

    def words(self, size: int | tuple[int, ...], dtype: DTypeLike = np.uint64) -> NDArray[Any]:
        """Return an array of uniform machine integers: all bit patterns of `dtype` are equally likely."""
        kind = np.dtype(dtype)
        if kind.kind not in "iu":
            raise InvalidInput(f"dtype must be an integer type, not {kind}")
        out = np.empty(check.shape("size", size), kind)
        self.fill(out)
        return out

    def integers(self, bound: int, size: int) -> NDArray[np.uint64]:
        """Return `size` integers uniform on 0 ... bound - 1, for a bound of at most 2^64.

        No modulo bias: as many bits as `bound - 1` has are drawn, and a value that reaches the bound is drawn
        again, which happens less than once per value on average.
        """
        bound = check.integer("bound", bound, least=1, most=1 << 64)
        out: NDArray[np.uint64] = self.words(check.integer("size", size, least=0))
        top = np.uint64(bound - 1)
        mask = np.uint64((1 << int(top).bit_length()) - 1)
        out &= mask
        wrong = np.flatnonzero(out > top)
        while wrong.size:
            fresh = self.words(wrong.size) & mask
            out[wrong] = fresh
            wrong = wrong[fresh > top]
        return out

    def integer(self, bound: int) -> int:
        """Return one integer uniform on 0 ... bound - 1, for a bound of any width."""
        bound = check.integer("bound", bound, least=1)
        bits = (bound - 1).bit_length()
        count = (bits + 7) // 8
        while True:
            value = int.from_bytes(self.bytes(count), "big") >> (8 * count - bits)
            if value < bound:
                return value

    def fork(self, label: str) -> SecureStream:
        """Return the stream of a label: the same for the same key and label, else independent.

        It does not depend on how far this stream has been read. A label can be used once: forking it
        again would give the same noise a second time, and is refused.
        """
        if not isinstance(label, str) or not label:
            raise InvalidInput(f"label must be a non-empty string, not {label!r}")
        self._leave_the_parent()
        with self._lock:
            if label in self._labels:
                raise InvalidInput(f"label must be new to this stream, and {label!r} was forked already")
            self._labels.add(label)
        child = SecureStream(_derive(self._root, b"fork:" + label.encode("utf-8", "surrogatepass")))
        child._reproducible = self._reproducible
        return child

    def __repr__(self) -> str:
        return f"SecureStream({'key=...' if self._reproducible else ''})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a SecureStream cannot be copied or pickled: the copy would repeat its noise")


def require_stream(stream: Any) -> SecureStream:
    """Return `stream`, or raise: noise from any other generator could be predicted."""
    if not isinstance(stream, SecureStream):
        raise InvalidInput(f"stream must be a SecureStream, not {type(stream).__name__}")
    return stream


def keystream(key: bytes) -> Any:
    """Return an AES-CTR encryptor that starts at counter zero: encrypting zeros gives the stream."""
    return Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()


def _derive(root: bytes, purpose: bytes) -> bytes:
    # `root` is uniform already, so HKDF's extract step has nothing to do: expand is enough.
    return HKDFExpand(SHA256(), KEY_BYTES, b"cape stream 1 " + purpose).derive(root)
