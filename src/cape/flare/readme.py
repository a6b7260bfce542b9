"""The texts in the kits: what an IT department does with a folder that it was handed, in five minutes."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["aggregator_text", "coordinator_text", "overview", "site_text"]

_INSTALL = "pip install 'cape-dp[flare,desk]'  # or '.[flare,desk]' in a checkout; one version for all"


def site_text(name: str, server: str, port: int) -> str:
    """Return the README of a site's kit."""
    site, link = f"/var/lib/cape/{name}", f"/var/lib/cape-link/{name}"
    admin = f"/run/cape-admin/{name}/admin.sock"
    return f"""# The kit of site {name}

This folder connects one site to one aggregator. It holds a certificate for mutual TLS (`startup/`) and what
NVFLARE may do here (`local/`). It belongs to the *link*, the process that faces the network. Rows, key,
policy and ledger belong to the *daemon*, which has no network, under another user, in another folder:

    aggregator <--- TLS ---> link (user cape-link) <--- socket ---> daemon (user cape-site) ---- rows
     {server}:{port}          this folder                            {site}

Whoever breaks into the link can send messages to the daemon, as anybody on the network can, and nothing else.
Rows never leave this machine; what leaves is noisy, masked, and written into the site's ledger first.

## What the network must allow

One outgoing TCP connection to {server}:{port} (TLS 1.2 or later, both sides with certificates). Nothing has
to be reachable from outside.

## Set up, once

A user for each process, and folders that the others cannot open (as root; `compose.yaml` does the same with
containers):

    {_INSTALL}
    useradd --system --shell /usr/sbin/nologin cape-site
    useradd --system --shell /usr/sbin/nologin cape-link
    useradd --system --shell /usr/sbin/nologin cape-desk
    install -d -m 711 /var/lib/cape /var/lib/cape-link
    install -d -o cape-site -g cape-site -m 700 {site}
    cp -r . {link} && chown -R cape-link: {link} && chmod 700 {link}
    cp {link}/systemd/*.service /etc/systemd/system/

The site's key, policy and ledger; the data steward fills in the policy (data source, bounds, budget):

    runuser -u cape-site -- cape site init {site} --name {name}
    $EDITOR {site}/site.toml
    runuser -u cape-site -- cape site check --site {site}
    runuser -u cape-site -- cape site export-key --site {site} > {name}.card

Give `{name}.card` to the coordinator and to the other sites by a way that you trust (it holds no secret;
what matters is that nobody swaps it), and take theirs:

    runuser -u cape-site -- cape site trust coordinator.card --coordinator --site {site}
    runuser -u cape-site -- cape site trust OTHER.card --site {site}    # for each of the other sites
    systemctl enable --now cape-site-{name} cape-link-{name} cape-desk-{name}

Without systemd, the same commands under any supervisor, each as its own user:

    cape site serve --site {site} --desk cape-desk --admin {admin}   # as cape-site: needs no network
    cape join {link}                                                 # as cape-link
    cape desk --socket {admin}                                       # as cape-desk

Daemon and link meet at `/run/cape/{name}/link.sock`; `--link SOCKET` on both names another place. The daemon
turns away a link that runs as its own user or as root. The link may run on another machine: forward the
socket to it (`ssh -R`), and run `cape join --link` there. Daemon and desk meet at `{admin}`,
in a folder that belongs to cape-site and that the group cape-desk may enter (mode 2750).

## Every day

The desk, a page at http://127.0.0.1:8011 of this machine; the link to log in, which works once, is in its log
(`journalctl -u cape-desk-{name}`). Or, as root or cape-site:

    export CAPE_ADMIN={admin}
    cape site ledger           # every release: when, who asked, what, and the total
    cape site approve STUDY    # if the policy says approve = "ask"

SIGTERM stops each process. After a crash start it again: the ledger is on disk, and can only be too high.
Backups: all of `{site}` (docs/deployment.md says how). The key and the policy may be put back from a copy.
The ledger may not: an old copy forgets what was given since, and the site answers nothing until its steward
has settled the gap.

| file | what | who may read it |
|---|---|---|
| `startup/` | certificate and key for TLS | cape-link (0600) |
| `local/` | what NVFLARE may do here | cape-link |
| `systemd/`, `compose.yaml` | how the processes are started | everybody |
| `{site}/identity.key` | the site's own key | cape-site (0600); it was made here and never leaves |
| `{site}/site.toml`, `ledger.sqlite` | policy and ledger | cape-site: the data steward |
| `{site}/site.log` | the full story of every refusal | cape-site: the data steward |
"""


def aggregator_text(server: str, port: int) -> str:
    """Return the README of the aggregator's kit."""
    return f"""# The kit of the aggregator

Runs on the machine that sites know as {server}. Nobody has to trust it: it passes messages on and adds up
masked vectors. It has no key of the study, sees no row and no site's sum, and cannot change what it passes
on. If it is down, a study stops; if it lies, a study fails.

    {_INSTALL}
    cape serve .                     # stays in the foreground; systemd/ and compose.yaml make it a service

The network must allow incoming TCP on port {port} (mutual TLS) from the sites and from the coordinator.
Ctrl-C or SIGTERM stops it. After a crash start it again; the coordinator then runs `cape submit --resume`.
"""


def coordinator_text(server: str, port: int, sites: Sequence[str]) -> str:
    """Return the README of the coordinator's kit."""
    cards = " ".join(f"{name}.card" for name in sites)
    return f"""# The kit of the coordinator

Asks for studies over the aggregator at {server}:{port}. `identity.key` signs every request; sites answer
only to keys that they trust. It is made here, by the first command below, and never leaves.

    {_INSTALL}
    cape deploy export-key > coordinator.card     # makes the key; give the card to every site, by a safe way
    cape deploy trust {cards}
    cape status .                                 # who is connected
    cape submit study.toml --kit . --out results  # runs a study
    cape submit study.toml --kit . --out results --resume

The study file names the sites as they are named here: {", ".join(sites)}.
"""


def overview(server: str, port: int, sites: Sequence[str]) -> str:
    """Return the README beside the kits."""
    rows = "\n".join(f"| `sites/{name}/` | the IT department of {name} |" for name in sites)
    return f"""# Kits for one aggregator and {len(sites)} sites

Hand each folder to its owner over a channel that keeps it secret: it holds a private key for TLS.

| folder | goes to |
|---|---|
| `aggregator/` | whoever runs {server} (port {port}) |
| `coordinator/` | whoever asks for studies |
{rows}
| `authority/` | nobody: the key that signs certificates. Keep it offline, or delete it |

Each folder has a README to follow. Then everybody hands everybody else a card with a public key, once: see
there. Certificates say who may connect; the cards say whom a site answers, and are made at each place, so
that not even the maker of these kits can pretend to be a site.
"""
