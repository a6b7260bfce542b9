"""How processes are set up as systemd services, each as a user of its own, with what it needs and no more.

`cape-site` runs the daemon, with rows, key and ledger and without a network; `cape-link` runs the link, with
a network and without access to the site's folder; `cape-desk` runs the pages of the stewards, on loopback and
without access to either. Link and desk meet the daemon at sockets in two folders, which their groups may
enter. `cape-aggregator` runs the aggregator on its machine.
"""

from __future__ import annotations

__all__ = ["ADMIN", "DESK_PORT", "aggregator_unit", "desk_unit", "link_unit", "site_unit"]

DESK_PORT = 8011
"""Where the desk listens on loopback: the default of `cape desk`."""

ADMIN = "admin.sock"
"""The stewards' socket, in a folder for the desk's group."""

_HARDENED = """\
NoNewPrivileges=yes
ProtectSystem=strict
ProtectHome=yes
PrivateTmp=yes
PrivateDevices=yes
ProtectClock=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectControlGroups=yes
ProtectProc=invisible
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
RemoveIPC=yes
CapabilityBoundingSet=
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallFilter=~@privileged
SystemCallErrorNumber=EPERM
UMask=0077
LimitCORE=0
Restart=always
RestartSec=3"""

_INSTALL = """\
[Install]
WantedBy=multi-user.target
"""


def site_unit(name: str) -> str:
    """Return the unit of a site's daemon."""
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
# The stewards' socket is in a folder of its own, which the desk's group may enter; what is made in it has
# that group.
ExecStartPre=+/usr/bin/install -d -o cape-site -g cape-desk -m 2750 /run/cape-admin/{name}
ExecStart=/usr/bin/env cape site serve --site /var/lib/cape/{name} --admin /run/cape-admin/{name}/{ADMIN} \\
    --desk cape-desk
# Rows in a database on another machine: take out the next two lines, and allow that address alone
# (IPAddressDeny=any and IPAddressAllow=10.0.0.5).
PrivateNetwork=yes
RestrictAddressFamilies=AF_UNIX
ReadWritePaths=/var/lib/cape/{name} -/run/cape-admin/{name}
{_HARDENED}

{_INSTALL}"""


def link_unit(name: str) -> str:
    """Return the unit of a site's link."""
    return f"""\
# The link of site {name}: carries bytes between the aggregator and the daemon's socket. It holds no secret of
# the site, and cannot open its folder or its stewards' socket.
[Unit]
Description=CAPE link of site {name}
Wants=network-online.target
After=network-online.target cape-site-{name}.service

[Service]
User=cape-link
Group=cape-link
ExecStart=/usr/bin/env cape join /var/lib/cape-link/{name}
InaccessiblePaths=/var/lib/cape -/var/lib/cape-desk -/run/cape-admin
ReadWritePaths=/var/lib/cape-link/{name}
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
{_HARDENED}

{_INSTALL}"""


def desk_unit(name: str) -> str:
    """Return the unit of a site's desk."""
    return f"""\
# The desk of site {name}: pages for its stewards at http://127.0.0.1:{DESK_PORT}, over the daemon's
# administrative socket. It holds no rows and no key, and cannot open the site's folder. The link to log in is
# printed at its start: journalctl -u cape-desk-{name}
[Unit]
Description=CAPE desk of site {name}
After=cape-site-{name}.service
Wants=cape-site-{name}.service

[Service]
User=cape-desk
Group=cape-desk
StateDirectory=cape-desk/{name}
StateDirectoryMode=0700
ExecStart=/usr/bin/env cape desk --socket /run/cape-admin/{name}/{ADMIN} --port {DESK_PORT} \\
    --state /var/lib/cape-desk/{name}
InaccessiblePaths=/var/lib/cape -/var/lib/cape-link -/run/cape
# Loopback alone. For logins by OpenID Connect, notices by mail or to a web address, and browsers on other
# machines (which need --cert and --key), allow those addresses too.
IPAddressDeny=any
IPAddressAllow=localhost
SocketBindDeny=any
SocketBindAllow=tcp:{DESK_PORT}
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6
{_HARDENED}

{_INSTALL}"""


def aggregator_unit() -> str:
    """Return the unit of the aggregator."""
    return f"""\
# The aggregator: passes messages on, and adds up masked vectors. Nobody has to trust it.
[Unit]
Description=CAPE aggregator
Wants=network-online.target
After=network-online.target

[Service]
User=cape-aggregator
Group=cape-aggregator
ExecStart=/usr/bin/env cape serve /var/lib/cape-aggregator
ReadWritePaths=/var/lib/cape-aggregator
InaccessiblePaths=-/var/lib/cape -/var/lib/cape-link -/var/lib/cape-desk -/run/cape -/run/cape-admin
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
{_HARDENED}

{_INSTALL}"""
