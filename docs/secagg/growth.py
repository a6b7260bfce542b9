"""The tables and the picture of docs/secagg.md: `python docs/secagg/growth.py` measures and writes them.

One site and the aggregator are timed apart, each with a verifier of its own that remembers nothing: what they
would spend on machines of their own. One site in 20 drops after sharing. Takes about half a minute.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

from cape.noise import SecureStream
from cape.privacy.correlated import default_colluding
from cape.secagg import (
    Aggregator,
    Identity,
    Parameters,
    Roster,
    Send,
    Site,
    Verifier,
    automatic,
    smallest_threshold,
)

mpl.use("svg")
from matplotlib import pyplot as plt

HERE = Path(__file__).parent
PAGE = HERE.parent / "secagg.md"
SITES, ENTRIES = (5, 10, 20, 50, 100, 200, 400), (1_000, 10_000, 100_000, 1_000_000)


def measure(sites: int, entries: int, colluding: int | None = None) -> dict[str, Any]:
    """Return seconds and bytes of one timed site and of the aggregator."""
    identities = {f"{number:04d}": Identity() for number in range(sites)}
    roster = Roster.of({name: identity.public for name, identity in identities.items()})
    gone = set(list(identities)[1 : 1 + sites // 20])
    parameters = Parameters.agree(
        SecureStream().bytes(16), roster, entries, colluding=colluding, dropping=sites // 20
    )
    shared, vector = Verifier(remember=True), np.ones(entries, np.int64)
    timed = "0000"
    machines = {
        name: Site(parameters, name, identity, vector, verifier=Verifier() if name == timed else shared)
        for name, identity in identities.items()
    }
    aggregator = Aggregator(parameters)
    cost = {"site_s": 0.0, "aggregator_s": 0.0, "site_sent": 0, "site_received": 0}
    cost |= {"aggregator_sent": 0, "aggregator_received": 0}
    events: tuple[Any, ...] = tuple(Send(name, b"") for name in machines)
    for number in range(5):
        sends = [event for event in events if isinstance(event, Send)]
        cost["aggregator_sent"] += sum(len(send.data) for send in sends)
        events = ()
        for send in sends:
            if number >= 2 and send.to in gone:
                continue
            site = machines[send.to]
            start = time.perf_counter()
            data = site.handle(send.data) if number else site.start()
            middle = time.perf_counter()
            events += aggregator.handle(data)
            cost["aggregator_s"] += time.perf_counter() - middle
            cost["aggregator_received"] += len(data)
            if send.to == timed:
                cost["site_s"] += middle - start
                cost["site_sent"] += len(data)
                cost["site_received"] += len(send.data)
        if not events:
            start = time.perf_counter()
            events = aggregator.gone(aggregator.waiting)
            cost["aggregator_s"] += time.perf_counter() - start
    return {
        "sites": sites,
        "entries": entries,
        "neighbours": parameters.neighbours,
        **{key: round(value, 4) for key, value in cost.items()},
    }


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
            f"| {row['sites']} | {row['entries']:,} | {row['neighbours']} | {1e3 * row['site_s']:.0f} "
            f"| {1e3 * row['aggregator_s']:.0f} | "
            + " | ".join(f"{row[size] / 1e3:,.1f} kB" for size in sizes)
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
    (HERE / "growth.json").write_text(json.dumps([*by_sites, *by_entries], indent=1) + "\n")
    put("growth", table([*by_sites, *by_entries]))
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.2), constrained_layout=True)
    for axis, rows, key, label in (
        (axes[0], by_sites, "sites", "sites S (10,000 entries)"),
        (axes[1], by_entries, "entries", "entries D (20 sites)"),
    ):
        x = [row[key] for row in rows]
        axis.loglog(x, [row["site_s"] for row in rows], "o-", label="one site")
        axis.loglog(x, [row["aggregator_s"] for row in rows], "s--", label="aggregator")
        axis.set_xlabel(label)
        axis.set_ylabel("seconds")
        axis.grid(visible=True, alpha=0.3)
        axis.legend(frameon=False)
    figure.savefig(HERE / "growth.svg", metadata={"Date": None})
    print(table([*by_sites, *by_entries]))


if __name__ == "__main__":
    main()
