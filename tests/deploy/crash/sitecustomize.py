"""Loaded by the processes of a rehearsed deployment: kills a site at a chosen round, and lets one attack.

The file `crash` in a site's folder holds lines such as "mask before job" or "unmask after client". The first
line is acted on when its round comes, and removed first. The daemon does it, since only it knows the round:
it kills itself ("daemon"), or processes of its link. Only tests put this folder on PYTHONPATH.
"""

import inspect
import json
import os
import signal
import sys
import threading
import time
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from pathlib import Path

_ROUNDS = {
    "Adverts": "share",
    "Delivery": "mask",
    "Begin": "mask",
    "Survivors": "consistency",
    "Consents": "unmask",
}


def _round(member, data):
    from cape.secagg import messages
    from cape.site import wire

    message = wire.unpack_to_site(data)
    if isinstance(message, wire.Ask):
        return "mask" if message.opening else "advertise"
    if isinstance(message, wire.Carry):
        session = member._sessions.get(message.session)
        if session is not None:
            return _ROUNDS[type(messages.unpack(message.data, session.machine.parameters)).__name__]
    return type(message).__name__.lower()


def _planned(folder, round_, when):
    path = folder / "crash"
    if not path.is_file():
        return None
    lines = path.read_text().splitlines()
    if not lines or lines[0].split()[:2] != [round_, when]:
        return None
    path.write_text("".join(f"{line}\n" for line in lines[1:]))
    return lines[0].split()[2]


def _die(whom):
    """Kill what the plan says; what is left of the site does not answer this message."""
    if whom == "daemon":
        os.kill(os.getpid(), signal.SIGKILL)
    for job in _jobs(sys.argv[sys.argv.index("--link") + 1]):
        if whom == "client":
            os.kill(job.ppid(), signal.SIGKILL)
        os.kill(job.pid, signal.SIGSTOP if whom == "silent" else signal.SIGKILL)
    time.sleep(0.1)  # a stop reaches a busy thread last
    raise ConnectionError("as planned")


def _jobs(socket):
    """Return the processes of jobs of the link behind a socket."""
    import psutil

    found = []
    for process in psutil.process_iter():
        try:
            if "cape.flare.worker" in process.cmdline() and process.environ().get("CAPE_LINK") == socket:
                found.append(process)
        except psutil.Error:
            continue
    return found


def _patch(module):
    handle = module.SiteEndpoint.handle

    def handled(self, data):
        round_ = _round(self, data)
        if (whom := _planned(self.folder.path, round_, "before")) is not None:
            _die(whom)
        answer = handle(self, data)
        if (whom := _planned(self.folder.path, round_, "after")) is not None:
            _die(whom)
        return answer

    module.SiteEndpoint.handle = handled


def _lie(module):
    """Let a site's client or the aggregator do what the file `lie` in its kit says: one of attacks.py."""
    agent = module.FedAdminAgent if hasattr(module, "FedAdminAgent") else module.FedAdminServer
    begin = agent.__init__

    def begun(self, *arguments, **options):
        told = inspect.signature(begin).bind(self, *arguments, **options).arguments
        begin(self, *arguments, **options)
        engine = told.get("app_ctx") or told.get("fed_admin_interface")
        threading.Thread(target=_obey, args=(told["cell"], engine), daemon=True).start()

    agent.__init__ = begun


def _obey(cell, engine):
    import attacks

    kit = Path(engine.args.workspace)
    while True:
        time.sleep(0.1)
        if (kit / "lie").is_file():
            told = json.loads((kit / "lie").read_text())
            (kit / "lie").unlink()
            try:
                got = getattr(attacks, told["attack"])(cell, engine, **told["with"])
            except Exception as error:
                got = f"failed: {error!r}"
            (kit / "got.part").write_text(json.dumps(got))
            (kit / "got.part").rename(kit / "got")


_PATCHES = {
    "cape.site.endpoint": _patch,
    "nvflare.private.fed.client.admin": _lie,
    "nvflare.private.fed.server.admin": _lie,
}


class _Finder(MetaPathFinder, Loader):
    """Patches these modules as they are loaded."""

    def __init__(self):
        self._loaders = {}

    def find_spec(self, name, path, target=None):
        if name not in _PATCHES:
            return None
        spec = PathFinder.find_spec(name, path)
        self._loaders[name], spec.loader = spec.loader, self
        return spec

    def create_module(self, spec):
        return self._loaders[spec.name].create_module(spec)

    def exec_module(self, module):
        self._loaders[module.__name__].exec_module(module)
        _PATCHES[module.__name__](module)


def _next():
    """Load the next module of this name on the path, as Python would if this one were not there."""
    own = Path(__file__).parent
    spec = PathFinder.find_spec("sitecustomize", [place for place in sys.path if Path(place) != own])
    if spec is not None:
        spec.loader.exec_module(module_from_spec(spec))


sys.meta_path.insert(0, _Finder())
_next()
