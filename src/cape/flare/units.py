"""How a site's two processes are set up on its machine: systemd units and containers.

Two users, by default: `cape-site` runs the daemon, with rows, key and ledger and without a network;
`cape-link` runs the link, with a network and without access to the site's folder. They meet at a socket.
"""

from __future__ import annotations

__all__ = ["compose_text", "dockerfile_text", "link_unit", "site_unit"]

_HARDENED = """\
NoNewPrivileges=yes
ProtectSystem=strict
ProtectHome=yes
PrivateTmp=yes
PrivateDevices=yes
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectControlGroups=yes
RestrictSUIDSGID=yes
CapabilityBoundingSet=
UMask=0077
LimitCORE=0
Restart=always
RestartSec=3"""


def site_unit(name: str) -> str:
    """Return the systemd unit of a site's daemon."""
    return f"""\
# The daemon of site {name}: rows, key, policy and ledger. It has no network.
[Unit]
Description=CAPE site {name}

[Service]
User=cape-site
# The socket in /run/cape/{name} has this group, so that the link can connect to it. The site's files are
# readable by their owner alone.
Group=cape-link
RuntimeDirectory=cape/{name}
RuntimeDirectoryMode=0750
ExecStart=/usr/bin/env cape site serve --site /var/lib/cape/{name}
# Rows in a database on another machine: take out the next two lines, and allow that address alone
# (IPAddressDeny=any and IPAddressAllow=10.0.0.5).
PrivateNetwork=yes
RestrictAddressFamilies=AF_UNIX
ReadWritePaths=/var/lib/cape/{name}
{_HARDENED}

[Install]
WantedBy=multi-user.target
"""


def link_unit(name: str) -> str:
    """Return the systemd unit of a site's link."""
    return f"""\
# The link of site {name}: carries bytes between the aggregator and the daemon's socket. It holds no secret of
# the site, and cannot open its folder.
[Unit]
Description=CAPE link of site {name}
Wants=network-online.target
After=network-online.target cape-site-{name}.service

[Service]
User=cape-link
Group=cape-link
ExecStart=/usr/bin/env cape join /var/lib/cape-link/{name}
InaccessiblePaths=/var/lib/cape
ReadWritePaths=/var/lib/cape-link/{name}
{_HARDENED}

[Install]
WantedBy=multi-user.target
"""


def dockerfile_text() -> str:
    """Return the image that both containers of a site run."""
    return """\
FROM python:3.11-slim
RUN pip install --no-cache-dir 'cape-dp[flare]'
# The socket's folder belongs to the daemon (10001); the link's group (10002) may enter it.
RUN install -d -o 10001 -g 10002 -m 750 /run/cape
"""


def compose_text(name: str) -> str:
    """Return the two containers of a site."""
    return f"""\
# The two processes of site {name} in containers of their own:
#   docker compose up -d
# The site's folder must belong to user 10001: chown -R 10001 /var/lib/cape/{name}
# This kit must belong to user 10002:          chown -R 10002 .
services:
  site:  # rows, key, policy and ledger; no network
    build: .
    user: "10001:10002"
    command: ["cape", "site", "serve", "--site", "/site", "--link", "/run/cape/link.sock"]
    network_mode: none
    volumes:
      - /var/lib/cape/{name}:/site
      - socket:/run/cape
    read_only: true
    tmpfs: [/tmp]
    cap_drop: [ALL]
    security_opt: ["no-new-privileges:true"]
    restart: always
  link:  # the network; no access to the site's folder
    build: .
    user: "10002:10002"
    command: ["cape", "join", "/kit", "--link", "/run/cape/link.sock"]
    depends_on: [site]
    volumes:
      - .:/kit
      - socket:/run/cape:ro
    read_only: true
    tmpfs: [/tmp]
    cap_drop: [ALL]
    security_opt: ["no-new-privileges:true"]
    restart: always
volumes:
  socket:
"""
