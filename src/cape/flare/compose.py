"""How processes are set up as containers of one image (`image/Dockerfile`), each as a user of its own.

The same separation as with systemd (`cape.flare.units`): the daemon has no network, the link and the desk do
not have the site's folder, and each meets the daemon at a socket that only its group can reach. Roots are
read-only, and no container keeps a capability.
"""

from __future__ import annotations

from cape import __version__
from cape.flare.units import ADMIN, DESK_PORT

__all__ = ["IMAGE", "aggregator_compose", "site_compose"]

IMAGE = f"cape-dp:{__version__}"
_ADMIN = f"/run/cape-admin/{ADMIN}"
_GUARDED = f"""\
    image: {IMAGE}
    read_only: true
    tmpfs: [/tmp]
    cap_drop: [ALL]
    security_opt: ["no-new-privileges:true"]
    restart: always"""
_LOAD = f"""\
# The image {IMAGE} is built in a checkout of CAPE (`make image`, or docker build -f image/Dockerfile), or was
# handed to you as a file: docker load -i cape-dp.tar"""


def site_compose(name: str, port: int) -> str:
    """Return the containers of a site whose aggregator listens on a port."""
    return f"""\
# The processes of site {name} in containers of their own:
#   docker compose up -d
{_LOAD}
# The site's folder must belong to user 10001: chown -R 10001 /var/lib/cape/{name}
# This kit must belong to user 10002:          chown -R 10002 .
# The link to log in to the desk:              docker compose logs desk
# Commands of a steward:                       docker compose exec site cape site inbox
services:
  site:  # rows, key, policy and ledger; no network
{_GUARDED}
    user: "10001:10002"
    command: [site, serve, --site, /site, --link, /run/cape/link.sock, --admin, {_ADMIN}, --desk, cape-desk]
    network_mode: none
    environment:
      CAPE_ADMIN: {_ADMIN}
      CAPE_HEALTH: answers {_ADMIN}
    volumes:
      - /var/lib/cape/{name}:/site
      - socket:/run/cape
      - admin:/run/cape-admin
  link:  # the network; neither the site's folder nor its stewards' socket
{_GUARDED}
    user: "10002:10002"
    command: [join, /kit, --link, /run/cape/link.sock]
    depends_on: [site]
    environment:
      CAPE_HEALTH: connected {port}
    volumes:
      - .:/kit
      - socket:/run/cape:ro
  desk:  # pages for stewards at http://127.0.0.1:{DESK_PORT} of this machine; the stewards' socket alone
{_GUARDED}
    user: "10003:10003"
    command: [desk, --socket, {_ADMIN}, --port, "{DESK_PORT}", --state, /var/lib/cape-desk]
    depends_on: [site]
    network_mode: host  # so that loopback is this machine's: without TLS the desk listens nowhere else
    environment:
      CAPE_HEALTH: listens {DESK_PORT}
    volumes:
      - desk:/var/lib/cape-desk
      - admin:/run/cape-admin:ro
volumes:
  socket:
  admin:
  desk:
"""


def aggregator_compose(port: int) -> str:
    """Return the aggregator's container."""
    return f"""\
# The aggregator in a container:
#   docker compose up -d
{_LOAD}
# This kit must belong to user 10004: chown -R 10004 .
services:
  aggregator:
{_GUARDED}
    user: "10004:10004"
    command: [serve, /kit]
    environment:
      CAPE_HEALTH: listens {port}
    ports: ["{port}:{port}"]
    volumes:
      - .:/kit
"""
