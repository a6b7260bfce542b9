"""The same game with deployed sites: folders, policies, ledgers, signed requests, and `Member.handle`.

Claim. What is judged here is what a site sends: each vector comes out of the function that a deployed site
runs, after its policy was read and its ledger written, from rows in a file and with the site's own noise.
How it is played.
- *One request, many sites.* All runs of a row send the same bytes to sites that have just been set up, from
  the same folder: the same run, names, keys and numbers. So whatever is drawn from what others know, or from
  anything that stands in the folder, is the same in every run, and the learned test sees through it.
- *Lost sites.* With `lost`, honest sites agree on keys and are gone before they send; `min_sites` are left.
- *Forged answers.* With `forged`, the coordinator tells sites made-up totals of earlier stages, far from
  anything that rows could give. The noise of the stages that follow must hold whatever it says, and the
  search for the tables goes by those very questions.
Tested in tests/audit/test_deployed.py.
"""

from __future__ import annotations

import math
import os
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import numpy as np
from numpy.typing import NDArray

from cape import secagg
from cape.analyses import KINDS
from cape.audit.game import Game, Played, claimed, coin
from cape.audit.learned import features, stack
from cape.audit.likelihood import evidence
from cape.audit.view import Stage, Watch, encoded
from cape.audit.world import SCHEMA, Remembered, analysis_of, frame, stream_of
from cape.engine.calibration import Calibration
from cape.engine.query import Query
from cape.engine.session import AnalysisSession, StageResult
from cape.errors import CapeError
from cape.noise import SecureStream
from cape.secagg.keys import KEY_BYTES, Identity, Roster
from cape.secagg.parameters import RUN_BYTES
from cape.steward import Member, Request, SiteFolder, make_request, wire
from cape.steward.template import plain_policy
from cape.study.document import Asked, read

__all__ = ["forged_questions", "play"]

Int64 = NDArray[np.int64]
MEMORY = "/dev/shm"  # where a sync costs nothing
_LEAST, _MOST = -6, 12  # powers of two that made-up totals are near, in units of what is released


def play(
    game: Game,
    runs: range,
    seed: int,
    planted: Callable[[], AbstractContextManager[Any]] = nullcontext,
    label: str = "",
) -> Played:
    """Play the runs with these numbers, as `cape.audit.game.play` does in one process without folders.

    What sites draw from the operating system comes from a stream that is keyed by the seed and the run's
    number while a run lasts.
    """
    rows: list[tuple[bool, float, float, float, int]] = []
    views: list[Int64] = []
    memory = MEMORY if os.access(MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="cape-audit-", dir=memory) as folder:
        sites = _Sites(game, Path(folder))
        with planted(), sites.watch.on(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # few rows, much noise, and answers that say little
            for number in runs:
                present = coin(number)
                with _system_randomness(stream_of("run", seed, label, game.analysis, game.scheme, number)):
                    stages = sites.run(present)
                told = evidence(game.scheme, stages, sites.target, present)
                rows.append((present, told.ratio, told.moved, told.squares, told.count))
                views.append(features(stages, sites.target))
    return Played(
        np.array([row[0] for row in rows]),
        np.array([row[1] for row in rows]),
        stack(views),
        float(np.mean([row[2] for row in rows])),
        math.fsum(row[3] for row in rows),
        sum(row[4] for row in rows),
        *claimed([sites.asked.stages.promise(len(sites.asked.stages))], game.budget),
    )


@contextmanager
def _system_randomness(stream: SecureStream) -> Iterator[None]:
    """Let what asks the operating system for randomness get it from a stream, so that a run repeats."""
    with mock.patch.object(os, "urandom", stream.bytes):
        yield


@dataclass(frozen=True)
class _Asked:
    """A stage: its request, the bytes of it, the question, and the exact sums of sites in both worlds."""

    request: Request
    data: bytes
    query: Query
    calibration: Calibration
    exact: tuple[dict[str, Int64], ...]


class _Sites:
    """Two worlds of sites in folders: the target with either table, the others the same in both."""

    def __init__(self, game: Game, folder: Path) -> None:
        self.game, self.folder, names = game, folder, game.sites
        self.target = names[0]
        self.colluders = names[len(names) - game.colluding :] if game.colluding else []
        honest = [name for name in names if name not in self.colluders]
        self.lost = honest[len(honest) - game.lost :] if game.lost else []
        self.honest = honest if game.scheme == "cape" else honest[:1]  # else a message stands for itself
        self.watch = Watch(self.target, self.colluders)
        self.tables = game.tables.sites(Remembered)
        self.study = document(game)
        self.asked = read(self.study, 1)
        keys = stream_of("deployed", game.analysis, game.scheme, game.lost, game.forged)
        self.office = Identity(keys.bytes(KEY_BYTES))
        self.identities = {name: Identity(keys.bytes(KEY_BYTES)) for name in names}
        self.run_name = keys.bytes(RUN_BYTES)
        rows = dict(zip(names, (game.tables.one, *game.tables.others), strict=True))
        for name in self.honest:
            with _system_randomness(keys.fork(f"folder of {name}")):
                self.identities[name] = SiteFolder.create(folder / "one" / name, name).identity
            frame(rows[name]).write_csv(folder / "one" / name / "rows.csv")
        for name in self.honest:
            (folder / "one" / name / "site.toml").write_text(self._policy(name), encoding="utf-8")
        shutil.copytree(folder / "one" / self.target, folder / "two" / self.target)
        frame(game.tables.two).write_csv(folder / "two" / self.target / "rows.csv")
        with _system_randomness(keys.fork("requests")):
            self.stages = [self._asked_for(*stage) for stage in _stages(game, self.asked)]

    def _asked_for(self, talk: AnalysisSession, told: list[StageResult]) -> _Asked:
        """Return a stage with its request, which every run sends as it is, and with its exact sums."""
        roster = Roster.of({name: identity.public for name, identity in self.identities.items()})
        request = make_request(
            self.study, 1, talk, roster=roster, run=self.run_name, identity=self.office, earlier=told
        )
        query, (calibration, _) = talk.pending(), talk.calibrate()
        left = [name for name in self.honest if name not in self.lost]
        exact = tuple(
            {name: encoded(world[name], query, calibration) for name in left} for world in self.tables
        )
        return _Asked(request, request.pack(), query, calibration, exact)

    def _policy(self, name: str) -> str:
        """Return a policy that allows this study, and no site less than it supposes."""
        budget, parties = self.game.budget, self.asked.setting.parties
        return plain_policy(
            name,
            SCHEMA.to_dict(),
            list(KINDS),
            min_rows=1,
            other_honest=max(0, parties.honest - 1),
            colluding=parties.colluding,
            epsilon=(budget.epsilon,) * 3,
            delta=budget.delta,
            coordinators={"office": self.office.public},
            peers={peer: identity.public for peer, identity in self.identities.items() if peer != name},
        )

    def run(self, present: bool) -> list[Stage]:
        """Return what is seen of a run with the second table, or with the first."""
        here = self.folder / "run"
        members = {}
        for name in self.honest:
            kept = self.folder / ("two" if present and name == self.target else "one") / name
            members[name] = Member(SiteFolder(shutil.copytree(kept, here / name)))
        self.watch.stages = []
        for asked in self.stages:
            true, other = asked.exact[present], asked.exact[not present][self.target]
            seen = Stage(asked.query, asked.calibration, dict(true), other)
            self.watch.stages.append(seen)
            if self.game.scheme == "cape":
                self._aggregate(members, asked)
            else:
                offered = _taken(say(members[self.target], wire.Ask(1, asked.data)), wire.Offered)
                seen.total = np.frombuffer(offered.data, "<i8")
                seen.seen = {self.target: seen.total}
        shutil.rmtree(here)
        return self.watch.stages

    def _aggregate(self, members: Mapping[str, Member], asked: _Asked) -> None:
        """Play secure aggregation; who is lost says nothing once keys are agreed."""
        size, session = asked.calibration.size, asked.request.session
        parameters = asked.request.parameters(self.asked.setting.parties, size)
        aggregator = secagg.Aggregator(parameters)
        zeros = np.zeros(size, np.int64)  # what colluders put in: they and the aggregator know it
        machines = {name: secagg.Site(parameters, name, self.identities[name]) for name in self.colluders}
        masked: dict[str, bytes] = {}

        def carry(name: str, data: bytes) -> bytes:
            if name in machines:
                if machines[name].state is secagg.SiteState.SHARED:
                    machines[name].begin(0, zeros)
                return machines[name].handle(data)
            return bytes(_taken(say(members[name], wire.Carry(1, session, data)), wire.Carried).data)

        events: tuple[Any, ...] = ()
        for member in members.values():
            offered = _taken(say(member, wire.Ask(1, asked.data)), wire.Offered)
            events += aggregator.handle(offered.data)
        for machine in machines.values():
            events += aggregator.handle(machine.start())
        self.watch.clear()
        for round_ in ("share", "mask", "consistency", "unmask"):
            if round_ == "mask":
                events = aggregator.begin()
            answers: tuple[Any, ...] = ()
            for event in events:
                if isinstance(event, secagg.Send) and not (event.to in self.lost and round_ != "share"):
                    data = carry(event.to, event.data)
                    if round_ == "mask":
                        masked[event.to] = data
                    answers += aggregator.handle(data)
            if round_ == "mask" and self.lost:
                answers += aggregator.gone(self.lost)
            events = answers
        (finished,) = [event for event in events if isinstance(event, secagg.Finished)]
        held = dict.fromkeys(self.colluders, zeros)
        self.watch.keep(parameters, masked, held, finished.total)


def say(member: Member, message: Any) -> wire.FromSite:
    """Return what a site answers to a message, both as bytes on the way."""
    return wire.unpack_from_site(member.handle(wire.pack(message)))


def _taken(answer: wire.FromSite, kind: type[Any]) -> Any:
    if not isinstance(answer, kind):
        raise CapeError(f"a deployed site did not answer as it must: {answer}")
    return answer


def document(game: Game) -> dict[str, Any]:
    """Return the study that is asked: one analysis, for the whole budget."""
    described = msgspec.to_builtins({**analysis_of(game.analysis).to_dict(), "share": 1.0}, str_keys=True)
    return {
        "name": "audit",
        "description": "",
        "scheme": game.scheme,
        "epsilon": game.budget.epsilon,
        "delta": game.budget.delta,
        "colluding": game.colluding,
        "min_sites": len(game.sites) - game.lost,
        "neighbours": game.neighbours,
        "schema": msgspec.to_builtins(SCHEMA.to_dict(), str_keys=True),
        "sites": game.sites,
        "analyses": [described],
    }


def forge(analysis: str, stage: int, calibration: Calibration, rows: int) -> StageResult:
    """Return a made-up total of a stage: numbers of all sizes, which no rows need to give."""
    stream = stream_of("forged", analysis, stage)
    parts = []
    for step in calibration.steps:
        powers = stream.integers(_MOST - _LEAST, step.array.size).astype(np.float64) + _LEAST
        signs = 1.0 - 2.0 * stream.integers(2, step.array.size)
        parts.append(np.rint(signs * 2.0**powers / step.size).astype(np.int64))
    return StageResult.of(np.concatenate(parts), 1, rows)


def forged_questions(game: Game) -> list[tuple[Query, Calibration]]:
    """Return what sites are asked, and on which grids, when every earlier answer is made up."""
    return [(talk.pending(), talk.calibrate()[0]) for talk, _ in _stages(game, read(document(game), 1))]


def _stages(game: Game, asked: Asked) -> Iterator[tuple[AnalysisSession, list[StageResult]]]:
    """Yield the coordinator's talk at each stage, and what it says that the stages before have released."""
    if len(asked.stages) > 1 and not game.forged:
        raise CapeError("an analysis in several stages is asked of deployed sites with forged answers only")
    talk, told = asked.session(), list[StageResult]()
    rows = sum(map(len, (game.tables.one, *game.tables.others)))
    yield talk, told
    for stage in range(len(asked.stages) - 1):
        told = [*told, forge(game.analysis, stage, talk.calibrate()[0], rows)]
        talk.tell(told[-1])
        yield talk, told
