from __future__ import annotations

import copy
import pickle
import platform
import subprocess
import sys
import threading

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from cape.core.errors import InvalidInput
from cape.noise import SecureStream
from cape.noise.stream import _derive
from tests.unit.noise.statistics import ERROR_RATE

KEY = bytes(range(32))


def test_known_answers():
    stream = SecureStream(KEY)
    assert stream.bytes(32).hex() == "0d9c68cf8df0290559f89c07b01e7864b7a6db7b1695a92e2cf8e6eea615608d"
    assert SecureStream(KEY).fork("site").bytes(16).hex() == "3f96d4a2bd2ec7992770eb146e5652d6"
    assert SecureStream(KEY).integer(10**30) == int("67398280165685273638002606203")
    assert SecureStream(KEY).integers(1000, 4).tolist() == [13, 89, 695, 44]


def test_bytes_are_aes_of_a_counter_under_a_derived_key():
    block = Cipher(algorithms.AES(_derive(KEY, b"bytes")), modes.ECB()).encryptor()
    expected = b"".join(block.update(i.to_bytes(16, "big")) for i in range(6000))
    assert SecureStream(KEY).bytes(96_000) == expected  # crosses the internal chunk of 65,536


@given(st.lists(st.integers(0, 70_000), max_size=5))
def test_reading_in_pieces_gives_the_same_bytes(sizes):
    whole = SecureStream(KEY).bytes(sum(sizes))
    stream = SecureStream(KEY)
    assert b"".join(stream.bytes(size) for size in sizes) == whole


def test_fill_writes_any_contiguous_integer_array_in_place():
    array = np.zeros((3, 5), np.uint32)
    SecureStream(KEY).fill(array)
    assert array.tobytes() == SecureStream(KEY).bytes(60)


def test_streams_from_the_system_differ():
    assert SecureStream().bytes(32) != SecureStream().bytes(32)


def test_forks_differ_by_label_and_do_not_depend_on_the_position():
    one, moved = SecureStream(KEY), SecureStream(KEY)
    moved.bytes(1000)
    assert one.fork("a").bytes(32) == moved.fork("a").bytes(32)
    assert one.fork("b").bytes(32) != moved.fork("c").bytes(32)
    assert one.fork("d").bytes(32) != SecureStream(KEY).bytes(32)


def test_a_label_cannot_be_forked_twice():
    stream = SecureStream(KEY)
    stream.fork("noise")
    with pytest.raises(InvalidInput, match="'noise' was forked already"):
        stream.fork("noise")


@pytest.mark.parametrize("copier", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_stream_cannot_be_copied(copier):
    with pytest.raises(TypeError, match="repeat its noise"):
        copier(SecureStream())


def test_repr_holds_no_key():
    assert repr(SecureStream(KEY)) == "SecureStream(key=...)"


def test_a_forked_process_draws_from_a_new_key():
    code = """
import os, sys
from cape.noise import SecureStream
stream = SecureStream()
stream.bytes(8)
read, write = os.pipe()
if os.fork() == 0:
    os.write(write, stream.bytes(16) + stream.fork("x").bytes(16))
    os._exit(0)
os.wait()
child = os.read(read, 32)
assert child[:16] != stream.bytes(16)
assert child[16:] != stream.fork("x").bytes(16)
print("apart")
"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True)
    assert done.stdout == "apart\n", done.stderr


IN_A_NAMESPACE = """
import ctypes, os, sys
from cape.noise import SecureStream
from cape.secagg.keys import Identity
stream, kept, keyed = SecureStream(), SecureStream(), SecureStream(bytes(32))
labelled = kept.fork("before")
stream.bytes(8)
read, write = os.pipe()
if ctypes.CDLL(None, use_errno=True).unshare(0x20000000):  # CLONE_NEWPID
    sys.exit("not permitted")


def drawn():
    own = [stream.bytes(16), stream.fork("x").bytes(16), labelled.bytes(16), Identity().public[:16]]
    return b"".join(own) + keyed.bytes(16)


if os.fork() == 0:
    os.write(write, os.getpid().to_bytes(8, "big") + drawn())
    os._exit(0)
os.wait()
os.close(write)
child, mine = os.read(read, 200), drawn()
assert int.from_bytes(child[:8], "big") == os.getpid(), "the test needs equal ids"
for place in range(8, 72, 16):
    assert child[place : place + 16] != mine[place - 8 : place + 8], place
assert child[72:] == mine[64:], "a stream with a key stays what it is"
print("apart")
"""


def test_a_process_forked_into_a_pid_namespace_draws_from_a_new_key():
    """The child has its parent's process id: both are the first in their namespace."""
    command = ["unshare", "--pid", "--fork", sys.executable, "-W", "ignore", "-c", IN_A_NAMESPACE]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    except FileNotFoundError:
        pytest.skip("there is no unshare here")
    if "not permitted" in done.stderr:
        pytest.skip("PID namespaces are not permitted here")
    assert done.stdout == "apart\n", done.stderr


def test_a_process_made_without_hooks_draws_from_a_new_key():
    code = """
import ctypes, os
from cape.noise import SecureStream
stream = SecureStream()
read, write = os.pipe()
if ctypes.CDLL(None).syscall(56, 17, 0, 0, 0, 0) == 0:  # clone(SIGCHLD): Python does not hear of it
    os.write(write, stream.bytes(16))
    os._exit(0)
os.wait()
assert os.read(read, 16) != stream.bytes(16)
print("apart")
"""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        pytest.skip("the number of the system call is that of Linux on x86-64")
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True)
    assert done.stdout == "apart\n", done.stderr


def test_threads_of_a_forked_process_take_one_new_key():
    code = """
import os, threading
from cape.noise import SecureStream
stream = SecureStream()
read, write = os.pipe()
if os.fork() == 0:
    found, ready = [], threading.Barrier(8)
    def draw():
        ready.wait()
        found.extend(stream.bytes(16) for _ in range(200))
    threads = [threading.Thread(target=draw) for _ in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    os.write(write, str(len(set(found))).encode())
    os._exit(0)
os.wait()
print(os.read(read, 10).decode())
"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True)
    assert done.stdout == "1600\n", done.stderr


def test_threads_may_share_a_stream():
    stream = SecureStream(KEY)
    drawn = []

    def draw():
        for _ in range(50):
            drawn.append(stream.bytes(100_000))

    threads = [threading.Thread(target=draw) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(drawn)) == 200
    whole = SecureStream(KEY).bytes(20_000_000)
    assert set(drawn) == {whole[start : start + 100_000] for start in range(0, len(whole), 100_000)}


@pytest.mark.parametrize("bound", [1, 2, 3, 6, 1000, 3 << 61, (1 << 64) - 1, 1 << 64])
def test_integers_are_uniform_below_any_bound(bound, stream):
    values = stream.integers(bound, 60_000)
    assert values.dtype == np.uint64
    assert int(values.max()) < bound
    if bound > 1:
        bins = min(bound, 3)
        observed = np.bincount([int(v) * bins // bound for v in values], minlength=bins)
        expected = np.diff([-(-i * bound // bins) for i in range(bins + 1)]) / bound * values.size
        assert stats.chisquare(observed, expected.astype(float)).pvalue > ERROR_RATE


def test_modulo_bias_would_be_seen(stream):
    # bound 3 * 2^62: words modulo it hit the lowest third twice as often
    biased = [int(v) % (3 << 62) * 3 // (3 << 62) for v in stream.words(60_000)]
    assert stats.chisquare(np.bincount(biased)).pvalue < ERROR_RATE


@given(st.integers(1, 1 << 300))
def test_integer_of_any_width_is_below_its_bound(bound):
    assert 0 <= SecureStream(KEY).integer(bound) < bound


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.uint32, np.int64])
def test_every_bit_of_a_word_is_fair(dtype, stream):
    words = stream.words(100_000, dtype)
    bits = np.unpackbits(words.view(np.uint8).reshape(words.size, -1), axis=1).sum(axis=0)
    z = (bits - words.size / 2) / np.sqrt(words.size / 4)
    assert np.abs(z).max() < stats.norm.isf(ERROR_RATE / 2 / z.size)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: SecureStream(b"short"), "key must be 32 bytes or None, not 5 bytes"),
        (lambda: SecureStream("0" * 32), "key must be 32 bytes or None, not str"),
        (lambda: SecureStream(KEY).bytes(-1), "count must be an integer at least 0, not -1"),
        (lambda: SecureStream(KEY).words(2, np.float64), "dtype must be an integer type"),
        (lambda: SecureStream(KEY).words(-2), "size must be a count or a shape, not -2"),
        (lambda: SecureStream(KEY).integers(0, 3), "bound must be an integer at least 1"),
        (lambda: SecureStream(KEY).integers(1 << 65, 3), "at most 18446744073709551616"),
        (lambda: SecureStream(KEY).integer(0), "bound must be an integer at least 1, not 0"),
        (lambda: SecureStream(KEY).fork(""), "label must be a non-empty string"),
        (lambda: SecureStream(KEY).fill(bytes(8)), "out must be a writable"),
        (lambda: SecureStream(KEY).fill(np.zeros((4, 4))[:, ::2]), "out must be a writable"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(InvalidInput, match=message):
        call()
