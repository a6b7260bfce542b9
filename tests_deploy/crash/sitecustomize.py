"""Loaded by the processes of a rehearsed deployment: kills a site at a chosen round, and lets one lie.

The file `crash` in a site's folder holds lines such as "mask before job" or "unmask after client". The first
line is acted on when its round comes, and removed first. Only tests put this folder on PYTHONPATH.
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
    if whom == "client":
        os.kill(os.getppid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGSTOP if whom == "silent" else signal.SIGKILL)
    time.sleep(5)  # a stop reaches this thread last: on a busy machine it runs on for up to 30 ms


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
    """Let a site ask another's NVFLARE process for what the file `lie` in its folder says: whom, and what."""
    begin = module.FedAdminAgent.__init__

    def begun(self, client_name, cell, app_ctx):
        begin(self, client_name, cell, app_ctx)
        threading.Thread(target=_ask, args=(cell, Path(os.environ["CAPE_SITE"])), daemon=True).start()

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
