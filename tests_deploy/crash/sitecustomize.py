"""Loaded by the processes of a rehearsed deployment: kills a site at a chosen round, and lets one lie.

The file `crash` in a site's folder holds lines such as "mask before job" or "unmask after client". The first
line is acted on when its round comes, and removed first. The daemon does it, since only it knows the round:
it kills itself ("daemon"), or processes of its link. Only tests put this folder on PYTHONPATH.
"""

import os
import signal
import sys
import threading
import time
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import PathFinder
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
    from cape.steward import wire

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
    handle = module.Member.handle

    def handled(self, data):
        round_ = _round(self, data)
        if (whom := _planned(self.folder.path, round_, "before")) is not None:
            _die(whom)
        answer = handle(self, data)
        if (whom := _planned(self.folder.path, round_, "after")) is not None:
            _die(whom)
        return answer

    module.Member.handle = handled


def _lie(module):
    """Let a site ask another's NVFLARE process for what the file `lie` of its folder says: whom, and what."""
    begin = module.FedAdminAgent.__init__

    def begun(self, client_name, cell, app_ctx):
        begin(self, client_name, cell, app_ctx)
        folder = Path(os.environ["CAPE_LIES"]) / client_name
        threading.Thread(target=_ask, args=(cell, folder), daemon=True).start()

    module.FedAdminAgent.__init__ = begun


def _ask(cell, folder):
    from nvflare.private.admin_defs import Message
    from nvflare.private.defs import CellChannel, SysCommandTopic, new_cell_message

    while True:
        time.sleep(0.5)
        if (folder / "lie").is_file():
            target, command = (folder / "lie").read_text().split(" ", 1)
            (folder / "lie").unlink()
            request = new_cell_message({}, Message(SysCommandTopic.SHELL, command))
            options = {"channel": CellChannel.CLIENT_MAIN, "topic": "x", "timeout": 5}
            reply = cell.send_request(target=target, request=request, **options)
            (folder / "got").write_text(str(getattr(reply.payload, "body", reply.payload)))


_PATCHES = {"cape.steward.member": _patch, "nvflare.private.fed.client.admin": _lie}


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


sys.meta_path.insert(0, _Finder())
