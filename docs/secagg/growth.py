"""The tables and the picture of docs/secagg.md: `python docs/secagg/growth.py` measures and writes them.

One site and the aggregator are timed apart, each with a verifier of its own that remembers nothing: what they
would spend on machines of their own, in processor time, which other work on the machine does not touch. One
site in 20 drops after sharing, in every step. Takes about a minute.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Collection, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import matplotlib as mpl
import numpy as np

from cape.noise import SecureStream
from cape.privacy.correlated import default_colluding
from cape.secagg import (
    Aggregator,
    Event,
    Identity,
    Parameters,
    Roster,
    Send,
    Session,
    Site,
    Verifier,
    automatic,
    smallest_threshold,
)
from cape.secagg.messages import SETUP_ROUNDS, STEP_ROUNDS

mpl.use("svg")
from matplotlib import pyplot as plt

HERE = Path(__file__).parent
PAGE = HERE.parent / "secagg.md"
SITES, ENTRIES = (5, 10, 20, 50, 100, 200, 400), (1_000, 10_000, 100_000, 1_000_000)
STEPS = ((5, 1), (5, 10), (5, 100), (5, 1000), (20, 100))
BEGIN_BYTES = 62  # a message `Begin`


def measure(sites: int, entries: int, steps: int = 1) -> dict[str, Any]:
    """Return seconds and bytes of one timed site and of the aggregator: of the setup and of all steps.

    The shares that are passed on in the first step count as setup.
    """
    identities = {f"{number:04d}": Identity() for number in range(sites)}
    roster = Roster.of({name: identity.public for name, identity in identities.items()})
    gone = set(list(identities)[1 : 1 + sites // 20])
    parameters = Parameters.agree(
        SecureStream().bytes(16), roster, entries, dropping=sites // 20, steps=steps
    )
    shared, vector = Verifier(remember=True), np.ones(entries, np.int64)
    timed = "0000"
    machines = {
        name: Site(parameters, name, identity, verifier=Verifier() if name == timed else shared)
        for name, identity in identities.items()
    }
    aggregator = Aggregator(parameters)
    setup, later = defaultdict[str, float](float), defaultdict[str, float](float)
    events: Sequence[Event] = [Send(name, b"") for name in machines]
    for round_ in SETUP_ROUNDS:
        events = play(round_, events, machines, aggregator, setup, timed)
    for step in range(steps):
        shared.forget()
        for name in machines.keys() - gone:
            machines[name].begin(step, vector)
        start = time.process_time()
        events = aggregator.begin(step)
        later["aggregator_s"] += time.process_time() - start
        for round_ in STEP_ROUNDS:
            passing_on = step == 0 and round_ == "mask"
            asked = [event for event in events if isinstance(event, Send)]
            events = play(round_, events, machines, aggregator, later, timed, gone)
            if passing_on:  # the delivery, less what a later step begins with
                for who, sends in (("site_received", asked[:1]), ("aggregator_sent", asked)):
                    size = sum(len(send.data) - BEGIN_BYTES for send in sends)
                    setup[who] += size
                    later[who] -= size
    return {
        "sites": sites,
        "entries": entries,
        "steps": steps,
        "neighbours": parameters.neighbours,
        "setup": {key: round(value, 4) for key, value in setup.items()},
        "later": {key: round(value, 4) for key, value in later.items()},
    }


def play(
    round_: str,
    events: Sequence[Event],
    machines: dict[str, Site],
    aggregator: Aggregator,
    cost: dict[str, float],
    timed: str,
    gone: Collection[str] = (),
) -> Sequence[Event]:
    """Carry one round, and add up what it costs the timed site and the aggregator."""
    out: list[Event] = []
    for send in events:
        if not isinstance(send, Send):
            continue
        cost["aggregator_sent"] += len(send.data)
        if send.to in gone:
            continue
        site = machines[send.to]
        start = time.process_time()
        data = site.start() if round_ == "advertise" else site.handle(send.data)
        middle = time.process_time()
        out += aggregator.handle(data)
        cost["aggregator_s"] += time.process_time() - middle
        cost["aggregator_received"] += len(data)
        if send.to == timed:
            cost["site_s"] += middle - start
            cost["site_sent"] += len(data)
            cost["site_received"] += len(send.data)
    if not out:
        start = time.process_time()
        out += aggregator.gone(aggregator.waiting)
        cost["aggregator_s"] += time.process_time() - start
    return out


def whole(row: dict[str, Any], key: str) -> float:
    """Return what the setup and all steps cost together."""
    return float(row["setup"].get(key, 0) + row["later"].get(key, 0))


def table_of_steps(rows: list[dict[str, Any]]) -> str:
    """Return a Markdown table: the setup, and one step of many."""
    lines = [
        "| sites S | steps T | setup: site sends | receives | site, ms | aggregator, ms "
        "| a step: site sends | receives | site, ms | aggregator, ms | all in one process, ms |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        setup, later, steps = row["setup"], row["later"], row["steps"]
        lines.append(
            f"| {row['sites']} | {steps:,} | {setup['site_sent'] / 1e3:,.1f} kB "
            f"| {setup['site_received'] / 1e3:,.1f} kB | {1e3 * setup['site_s']:,.0f} "
            f"| {1e3 * setup['aggregator_s']:,.0f} | {later['site_sent'] / steps / 1e3:,.1f} kB "
            f"| {later['site_received'] / steps / 1e3:,.1f} kB | {1e3 * later['site_s'] / steps:.1f} "
            f"| {1e3 * later['aggregator_s'] / steps:.1f} | {row['together_ms']:.1f} |"
        )
    return "\n".join(lines) + "\n"


def together(sites: int, entries: int, steps: int) -> float:
    """Return milliseconds per step of a session in one process, the median."""
    names = [f"{number:04d}" for number in range(sites)]
    session = Session(names, entries, steps)
    vectors = {name: np.ones(entries, np.int64) for name in names}
    times = []
    for _ in range(steps):
        start = time.process_time()
        session.step(vectors)
        times.append(time.process_time() - start)
    return round(1e3 * median(times), 2)


def table(rows: list[dict[str, Any]]) -> str:
    """Return a Markdown table."""
    lines = [
        "| sites S | entries D | neighbours k | site, ms | aggregator, ms | site sends | site receives "
        "| aggregator sends | aggregator receives |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        sizes = ("site_sent", "site_received", "aggregator_sent", "aggregator_received")
        lines.append(
            f"| {row['sites']} | {row['entries']:,} | {row['neighbours']} | {1e3 * whole(row, 'site_s'):.0f} "
            f"| {1e3 * whole(row, 'aggregator_s'):.0f} | "
            + " | ".join(f"{whole(row, size) / 1e3:,.1f} kB" for size in sizes)
            + " |"
        )
    return "\n".join(lines) + "\n"


def choices() -> str:
    """Return rows of a Markdown table: k for several numbers of sites."""
    lines = []
    for sites in (51, 100, 200, 500, 1000, 5000):
        for colluding in (sites // 20, default_colluding(sites)):
            dropping = -(-sites // 20)
            k = [
                automatic(
                    sites,
                    colluding,
                    dropping,
                    smallest_threshold(sites, colluding, lying=lying),
                    lying=lying,
                ).neighbours
                for lying in (True, False)
            ]
            lines.append(f"| {sites:,} | {colluding:,} | {dropping} | {k[0]} | {k[1]} |")
    return "\n".join(lines) + "\n"


def put(mark: str, text: str) -> None:
    """Replace what stands between two marks on the page."""
    before, _, rest = PAGE.read_text().partition(f"<!-- {mark} -->\n")
    _, _, after = rest.partition(f"<!-- /{mark} -->")
    PAGE.write_text(f"{before}<!-- {mark} -->\n{text}<!-- /{mark} -->{after}")


def main() -> None:
    """Measure, and write the numbers, the tables and the picture."""
    put("neighbours", choices())
    measure(5, 100)  # the first run loads and warms what the others use
    by_sites = [measure(sites, 10_000) for sites in SITES]
    by_entries = [measure(20, entries) for entries in ENTRIES]
    by_steps = [
        measure(sites, 10_000, steps) | {"together_ms": together(sites, 10_000, max(steps, 10))}
        for sites, steps in STEPS
    ]
    put("steps", table_of_steps(by_steps))
    (HERE / "growth.json").write_text(json.dumps([*by_sites, *by_entries, *by_steps], indent=1) + "\n")
    put("growth", table([*by_sites, *by_entries]))
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.2), constrained_layout=True)
    for axis, rows, key, label in (
        (axes[0], by_sites, "sites", "sites S (10,000 entries)"),
        (axes[1], by_entries, "entries", "entries D (20 sites)"),
    ):
        x = [row[key] for row in rows]
        axis.loglog(x, [whole(row, "site_s") for row in rows], "o-", label="one site")
        axis.loglog(x, [whole(row, "aggregator_s") for row in rows], "s--", label="aggregator")
        axis.set_xlabel(label)
        axis.set_ylabel("seconds")
        axis.grid(visible=True, alpha=0.3)
        axis.legend(frameon=False)
    figure.savefig(HERE / "growth.svg", metadata={"Date": None})
    print(table([*by_sites, *by_entries]))
    print(table_of_steps(by_steps))


if __name__ == "__main__":
    main()
