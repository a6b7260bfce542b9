"""Loaded by the processes of a rehearsed deployment: kills a site at a chosen round, once for each line.

The file `crash` in a site's folder holds lines such as "mask before job" or "unmask after client". The first
line is acted on when its round comes, and removed first. Only tests put this folder on PYTHONPATH.
"""

import os
import signal
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import PathFinder

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


class _Finder(MetaPathFinder, Loader):
    """Patches `cape.steward.member` as it is loaded."""

    def find_spec(self, name, path, target=None):
        if name != "cape.steward.member":
            return None
        spec = PathFinder.find_spec(name, path)
        self._loader, spec.loader = spec.loader, self
        return spec

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        self._loader.exec_module(module)
        _patch(module)


sys.meta_path.insert(0, _Finder())
