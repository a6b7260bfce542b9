"""The edge: memory that a message takes before its signature is checked, and the cost of judging a study."""

from __future__ import annotations

import ctypes
import gc
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from assurance.inputs.hostile import HOSTILE, SCHEMA, Hostile, request
from benchmarks.harness import Result, Skip, bench, peak_bytes
from cape.analyses.registry import KINDS

MEGABYTE = 1 << 20
SIZES = (1, 16, 256)  # megabytes
MOST_MEGABYTES = 256  # for a study that is judged
ALLOWANCE = 1 << 19  # bytes that a small message may take beside: pages that the allocator touches anyway

Shape = Callable[[int], bytes]


def _packed(*values: Any) -> bytes:
    """Pack a list; what `_fill` made is put in as it is."""
    parts = [each if isinstance(each, bytearray) else msgspec.msgpack.encode(each) for each in values]
    return b"".join([bytes([0x90 + len(values)]), *parts])


def _fill(value: Any, size: int) -> bytearray:
    """Return a packed list of one value again and again, without a list in memory."""
    one = msgspec.msgpack.encode(value)
    count = size // len(one)
    return bytearray(b"".join([b"\xdd", count.to_bytes(4, "big"), one * count]))


def _envelope(body: bytes, key: bytes = bytes(32)) -> bytes:
    return key + bytes(64) + body


# Of each, a message of about this many bytes. `KEY` stands for a key that the site trusts.
KEY = b"the key of an office that is trusted"[:32]
TO_SITE: dict[str, Shape] = {
    "nested lists": lambda size: b"\x91" * size,
    "nested maps": lambda size: b"\x81\x01" * (size // 2),
    "tiny bytes": lambda size: _packed("review", 1, _fill(b"xy", size)),
    "requests of an envelope's size": lambda size: _packed("review", 1, [_envelope(b"\x91")] * 10_000),
    "a text": lambda size: _packed("ask", 1, "\U0001f600" * (size // 4)),
    "a name": lambda size: _packed("\U0001f600" * (size // 4), 1),
    "an announced list": lambda size: b"\xdd\xff\xff\xff\xff" + bytes(size),
    "a carry": lambda size: _packed("carry", 1, bytes(16), bytes(size)),
    "an opening": lambda size: _packed("ask", 1, _envelope(b"\x91"), bytes(size)),
    "an unknown key": lambda size: _packed("ask", 1, _envelope(b"\x91" * size)),
    "a wrong signature": lambda size: _packed("ask", 1, _envelope(b"\x91" * size, KEY)),
    "a wrong signature, tiny bytes": lambda size: _packed(
        "ask", 1, _envelope(_packed(_fill(b"xy", size)), KEY)
    ),
    "two large requests": lambda size: _packed("review", 1, [_envelope(b"\x91" * (size // 2), KEY)] * 2),
    "cut off": lambda size: _packed("carry", 1, bytes(16), bytes(size + 100))[:size],
    "cut off in a list": lambda size: b"\x93\xa6review\x01\xdd\x00\x00\x27\x10" + b"\xc4\x02xy" * (size // 4),
}
FROM_SITE: dict[str, Shape] = {
    "nested lists": lambda size: b"\x91" * size,
    "refusals": lambda size: _packed("reviewed", 1, _fill(["refused", 1, "budget", "no"], size), None),
    "long refusals": lambda size: _packed(
        "reviewed", 1, _fill(["refused", 1 << 60, "budget", "é" * 900], min(size, 16 * MEGABYTE)), None
    ),
    "a sentence": lambda size: _packed("refused", 1, "budget", "\U0001f600" * (size // 4)),
    "a vector": lambda size: _packed("offered", 1, None, bytes(size)),
    "cut off": lambda size: _packed("carried", 1, bytes(size + 100))[:size],
}
CALLS: dict[str, Shape] = {
    "nested maps": lambda size: b"\x81\x01" * (size // 2),
    "names": lambda size: _packed("hello", _fill("é", size)),
    "a name": lambda size: _packed("hello", ["\U0001f600" * (size // 4)]),
    "requests": lambda size: _packed("stage", _fill(_envelope(b"\x91"), size), {"a": 0}, 1),
    "a large request": lambda size: _packed("stage", [_envelope(b"\x91" * size)], {"a": 0}, 1),
    "a map of sites": lambda size: b"\x94\xa5stage\x90\xdf\x00\x01\x00\x00" + b"\xa1a\x00" * (size // 3),
}
SECAGG: dict[str, Shape] = {
    "nested lists": lambda size: bytes(64) + b"\x91" * size,
    "a masked vector": lambda size: bytes(64) + _masked(size),
    "tiny shares": lambda size: bytes(64) + _reveal(size),
    "a name": lambda size: bytes(64) + _packed("\U0001f600" * (size // 4), 2),
}


def _masked(size: int) -> bytes:
    return _packed("masked", 2, bytes(16), bytes(32), 0, 3, 0, bytes(size))


def _reveal(size: int) -> bytes:
    return _packed("reveal", 2, bytes(16), bytes(32), 0, 5, 0, _fill(bytes(33), size), [])


@bench("edge.memory")
def memory_before_a_signature() -> Result:
    """Memory that a message takes beside its own bytes, as a multiple of them: the worst of all shapes."""
    worst = {f"{where}, {shape}": ratio for where in WHERE for shape, ratio in _measured(where).items()}
    value = max(worst.values())
    detail = {name: round(ratio, 2) for name, ratio in sorted(worst.items(), key=lambda each: -each[1])}
    return Result(value, 4.0, "lower", detail={"megabytes": list(SIZES), "worst": detail})


WHERE = {"site": TO_SITE, "aggregator": FROM_SITE, "call": CALLS, "secagg": SECAGG}


def _measured(where: str) -> dict[str, float]:
    """Return each shape's worst ratio, measured in a process of its own."""
    code = f"from benchmarks.edge import child; child({where!r})"
    large = os.environ | {"MALLOC_MMAP_THRESHOLD_": str(1 << 17)}  # freed as soon as it can be
    command = [sys.executable, "-W", "ignore", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, env=large)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    found: dict[str, float] = json.loads(done.stdout)
    return found


def child(where: str) -> None:
    """Print the worst that each shape takes, of all sizes."""
    found = dict.fromkeys(WHERE[where], 0.0)
    with TemporaryDirectory() as folder:
        take = _taker(where, Path(folder))
        take(b"\x91\xa5hello")  # what is loaded once
        for megabytes in SIZES:
            for name, shape in WHERE[where].items():
                data = shape(megabytes * MEGABYTE)
                _reset_peak()
                before = peak_bytes()
                take(data)
                ratio = max(peak_bytes() - before - ALLOWANCE, 0) / len(data)
                found[name] = max(ratio, found[name])
                del data
    print(json.dumps(found))


@bench("edge.cost")
def cost_of_judging() -> Result:
    """Seconds of CPU, and memory over 256 MB, that judging takes before anybody approved: the worst study."""
    found = {hostile.name: _judged(hostile) for hostile in HOSTILE}
    value = max(max(seconds, megabytes / MOST_MEGABYTES) for seconds, megabytes, _ in found.values())
    dearest = sorted(found.items(), key=lambda each: -max(each[1][0], each[1][1] / MOST_MEGABYTES))
    detail: dict[str, Any] = {name: f"{s:.2f} s, {mb:.0f} MB, {code}" for name, (s, mb, code) in dearest[:12]}
    codes = Counter(code for _, _, code in found.values())
    return Result(value, 1.0, "lower", detail={"studies": len(found), "answers": codes, "dearest": detail})


def _judged(hostile: Hostile) -> tuple[float, float, str]:
    """Return the CPU time and memory of a trial, and the site's answer, in a process of its own."""
    code = f"from benchmarks.edge import judge; judge({hostile.name!r})"
    one = os.environ | {"OPENBLAS_NUM_THREADS": "1", "POLARS_MAX_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, env=one
    )
    if done.returncode:
        raise RuntimeError(f"{hostile.name}: {done.stderr[-2000:]}")
    seconds, megabytes, answer = json.loads(done.stdout)
    return seconds, megabytes, answer


def judge(name: str) -> None:
    """Print what a site with a plain policy takes to judge a hostile study."""
    from cape.privacy import noise_for_mu
    from cape.secagg import Identity
    from cape.site import Refusal, SiteFolder
    from cape.site.template import plain_policy

    hostile = next(each for each in HOSTILE if each.name == name)
    noise_for_mu(1.0, 0.5, 2, 1e-9)  # what is loaded once
    with TemporaryDirectory() as folder:
        site, office = SiteFolder.create(Path(folder) / "a"), Identity()
        peers = {each: Identity().public for each in "bc"}
        (site.path / "site.toml").write_text(
            plain_policy("a", SCHEMA, list(KINDS), coordinators={"office": office.public}, peers=peers)
        )
        (site.path / "rows.csv").write_text("n0\n1\n")
        plain = Hostile("plain", {"kind": "mean", "columns": ["n0"]})
        roster = {"a": site.identity.public, **peers}
        site.consider(request(plain, office, roster).pack())
        data = request(hostile, office, roster).pack()
        _reset_peak()
        before, began = peak_bytes(), time.process_time()
        answer = site.consider(data)
        took, held = time.process_time() - began, peak_bytes() - before
    print(json.dumps([took, held / MEGABYTE, answer.code if isinstance(answer, Refusal) else "offer"]))


def _taker(where: str, folder: Path) -> Callable[[bytes], Any]:
    """Return what reads such a message, as far as a message that nobody signed gets."""
    if where == "site":
        from cape.site import SiteFolder
        from cape.site.endpoint import SiteEndpoint
        from cape.site.keyring import Card

        site = SiteFolder.create(folder / "site")
        site.trust(Card("office", KEY, "coordinator"), coordinator=True)
        return SiteEndpoint(site).handle
    from cape.coordinator.relay import Relay, _read
    from cape.secagg import Identity, Parameters, Roster, messages

    if where == "aggregator":
        return partial(_read, number=1)
    if where == "call":
        return Relay(_Nobody()).call
    roster = Roster.of({name: Identity().public for name in "abc"})
    parameters = Parameters.agree(bytes(16), roster, 256 * MEGABYTE // 8)
    return partial(_refused, messages.unpack_signed, parameters)


def _refused(read: Callable[..., Any], parameters: Any, data: bytes) -> None:
    from cape.core.errors import CapeError
    from cape.secagg.keys import Verifier
    from cape.secagg.messages import authenticate

    try:
        authenticate(read(data, parameters), data, parameters, Verifier())
    except CapeError:
        return


class _Nobody:
    def exchange(self, round_: str, messages: Any) -> Any:
        return iter(())


def _reset_peak() -> None:
    """Let the peak begin anew, where the system lets one; else it could only grow."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # what was freed and kept would hide what is taken next
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        raise Skip("the peak of memory cannot be reset on this system") from None
