"""The same game with deployed sites: folders, policies, ledgers, signed requests, and `SiteEndpoint.handle`.

Claim. The judged vectors are those that a site sends: each comes from the function that a deployed site runs,
after its policy was read and its ledger written, from rows in a file and with the site's own noise.
How it is played.
- *One request, many sites.* All runs of a row send the same bytes to sites that have just been set up from
  the same folder: the same run, names, keys and numbers. So whatever is drawn from what others know, or
  from anything in the folder, is the same in every run, and the learned test detects it.
- *Lost sites.* With `spare`, sites may be lost. They agree on keys and are then silent: before they send, so
  that `min_sites` are left, or when they should give up surplus noise.
- *Forged answers.* With `forged`, the coordinator sends sites made-up totals of earlier stages, far from
  anything that rows could give. The noise of later stages must hold regardless, and the search for the tables
  uses the queries that follow from them.
Tested in tests/unit/audit/test_deployed.py.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from cape import secagg
from cape.analyses import KINDS
from cape.audit.game import Game, Played, gather
from cape.audit.view import Stage, Watch
from cape.audit.world import SCHEMA, Remembered, analysis_of, frame, stream_of
from cape.core.errors import CapeError
from cape.engine.calibration import Calibration
from cape.engine.contribution import exact_sums
from cape.engine.query import Query
from cape.engine.session import AnalysisSession, StageResult
from cape.noise import SecureStream
from cape.secagg.keys import KEY_BYTES, Identity, Roster
from cape.secagg.parameters import RUN_BYTES
from cape.site import Request, SiteEndpoint, SiteFolder, make_request, wire
from cape.site.template import plain_policy
from cape.study.document import ParsedAnalysis, read

__all__ = ["forged_questions", "play"]

Int64 = NDArray[np.int64]
MEMORY = "/dev/shm"  # in memory: a sync costs nothing
_LEAST, _MOST = -6, 12  # made-up totals are between these powers of two, in units of what is released


def play(game: Game, runs: range, seed: int, label: str = "") -> Played:
    """Play the runs with these numbers, like `cape.audit.game.play`.

    Sites draw from streams that are keyed by the seed and the run's number.
    """
    memory = MEMORY if os.access(MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="cape-audit-", dir=memory) as folder:
        sites = _Sites(game, Path(folder))

        def run(number: int, present: bool) -> list[Stage]:
            drawn = stream_of("run", seed, label, game.analysis, game.scheme, number)
            return sites.run(present, drawn)

        stages = sites.asked.stages
        return gather(game, runs, run, lambda: [stages.guarantee(len(stages))])


@dataclass(frozen=True)
class _Asked:
    """A stage: its request, the request's bytes, the query, and the sites' exact sums in both worlds."""

    request: Request
    data: bytes
    query: Query
    calibration: Calibration
    exact: tuple[dict[str, Int64], ...]


class _Sites:
    """Two worlds of sites in folders: the target with either table, the others the same in both."""

    def __init__(self, game: Game, folder: Path) -> None:
        self.game, self.folder, names = game, folder, game.sites
        self.target, self.colluders = names[0], game.colluders
        honest = [name for name in names if name not in self.colluders]
        self.honest = honest if game.scheme == "cape" else honest[:1]  # else the target's message suffices
        self.tables = game.tables.sites(Remembered)
        self.study = document(game)
        self.asked = read(self.study, 1)
        keys = stream_of("deployed", game.analysis, game.scheme, game.spare, game.silent, game.forged)
        self.office = Identity(keys.bytes(KEY_BYTES))
        private = {name: keys.bytes(KEY_BYTES) for name in names}
        self.identities = {name: Identity(key) for name, key in private.items()}
        self.run_name = keys.bytes(RUN_BYTES)
        rows = dict(zip(names, (game.tables.one, *game.tables.others), strict=True))
        for name in self.honest:
            SiteFolder.create(folder / "one" / name, name, private=private[name])
            frame(rows[name]).write_csv(folder / "one" / name / "rows.csv")
            (folder / "one" / name / "site.toml").write_text(self._policy(name), encoding="utf-8")
        shutil.copytree(folder / "one" / self.target, folder / "two" / self.target)
        frame(game.tables.two).write_csv(folder / "two" / self.target / "rows.csv")
        self.stages = [self._asked_for(*stage) for stage in _stages(game, self.asked)]

    def _asked_for(self, talk: AnalysisSession, told: list[StageResult]) -> _Asked:
        """Return a stage with its request, which every run sends unchanged, and its exact sums."""
        roster = Roster.of({name: identity.public for name, identity in self.identities.items()})
        request = make_request(
            self.study, 1, talk, roster=roster, run=self.run_name, identity=self.office, earlier=told
        )
        query, (calibration, _) = talk.pending(), talk.calibrate()
        left = [name for name in self.honest if self.game.lost.get(name) != "mask"]
        exact = tuple(
            {name: exact_sums(world[name], query, calibration) for name in left} for world in self.tables
        )
        return _Asked(request, request.pack(), query, calibration, exact)

    def _policy(self, name: str) -> str:
        """Return a policy that allows this study and nothing weaker."""
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

    def run(self, present: bool, drawn: SecureStream) -> list[Stage]:
        """Return the view of a run with the second table or the first; sites draw from the stream."""
        here = self.folder / "run"
        members = {}
        for name in self.honest:
            kept = self.folder / ("two" if present and name == self.target else "one") / name
            site = SiteFolder(shutil.copytree(kept, here / name))
            members[name] = SiteEndpoint(site, drawn.fork(f"site {name}"))
        seen = []
        for number, asked in enumerate(self.stages):
            true, other = asked.exact[present], asked.exact[not present][self.target]
            stage = Stage(asked.query, asked.calibration, dict(true), other)
            if self.game.scheme == "cape":
                self._aggregate(members, asked, stage, drawn.fork(f"stage {number}"))
            else:
                offered = _taken(say(members[self.target], wire.Ask(1, asked.data)), wire.Offered)
                stage.total = np.frombuffer(offered.data, "<i8")
                stage.seen = {self.target: stage.total}
            seen.append(stage)
        shutil.rmtree(here)
        return seen

    def _aggregate(
        self, members: Mapping[str, SiteEndpoint], asked: _Asked, stage: Stage, drawn: SecureStream
    ) -> None:
        """Run secure aggregation; lost sites are silent from their round on."""
        size, session = asked.calibration.size, asked.request.session
        parameters = asked.request.parameters(self.asked.setting.parties, size)
        aggregator = secagg.Aggregator(parameters)
        watch = Watch(self.target, self.colluders, rungs=self.game.rungs)
        machines = {
            name: secagg.Site(parameters, name, self.identities[name], stream=drawn.fork(name))
            for name in self.colluders
        }
        watch.began(machines, aggregator)

        def carry(round_: str, name: str, data: bytes) -> tuple[secagg.Event, ...]:
            if name in machines:
                if machines[name].state is secagg.SiteState.SHARED:
                    machines[name].begin(0, np.zeros(size, np.int64))  # they and the aggregator know it
                watch.carried(secagg.Wire(round_, secagg.AGGREGATOR, name, data))
                answer = machines[name].handle(data)
            else:
                carried = _taken(say(members[name], wire.Carry(1, session, data)), wire.Carried)
                answer = bytes(carried.data)
            watch.carried(secagg.Wire(round_, name, secagg.AGGREGATOR, answer))
            return aggregator.handle(answer)

        events: tuple[secagg.Event, ...] = ()
        for member in members.values():
            offered = _taken(say(member, wire.Ask(1, asked.data)), wire.Offered)
            events += aggregator.handle(offered.data)
        for machine in machines.values():
            events += aggregator.handle(machine.start())
        for round_ in ("share", "mask", "consistency", "unmask"):
            if round_ == "mask":
                events = aggregator.begin()
            answers: tuple[secagg.Event, ...] = ()
            for event in events:
                if isinstance(event, secagg.Send) and self.game.lost.get(event.to) != round_:
                    answers += carry(round_, event.to, event.data)
            if lost := [name for name, when in self.game.lost.items() if when == round_]:
                answers += aggregator.gone(lost)
            events = answers
        (finished,) = [event for event in events if isinstance(event, secagg.Finished)]
        stage.total = finished.total
        watch.unmask(stage, finished.survivors, finished.late)


def say(member: SiteEndpoint, message: Any) -> wire.FromSite:
    """Return a site's answer to a message; both travel as bytes."""
    return wire.unpack_from_site(member.handle(wire.pack(message)))


def _taken(answer: wire.FromSite, kind: type[Any]) -> Any:
    if not isinstance(answer, kind):
        raise CapeError(f"unexpected answer of a deployed site: {answer}")
    return answer


def document(game: Game) -> dict[str, Any]:
    """Return the study: one analysis that takes the whole budget."""
    described = msgspec.to_builtins({**analysis_of(game.analysis).to_dict(), "share": 1.0}, str_keys=True)
    return {
        "name": "audit",
        "description": "",
        "scheme": game.scheme,
        "epsilon": game.budget.epsilon,
        "delta": game.budget.delta,
        "noise": "laplace" if game.budget.pure else "gaussian",
        "colluding": game.colluding,
        "min_sites": game.min_sites,
        "neighbours": game.neighbours,
        "schema": msgspec.to_builtins(SCHEMA.to_dict(), str_keys=True),
        "sites": game.sites,
        "analyses": [described],
    }


def forge(analysis: str, stage: int, calibration: Calibration, rows: int, sites: int) -> StageResult:
    """Return a made-up total of a stage: numbers of all sizes."""
    stream = stream_of("forged", analysis, stage)
    parts = []
    for step in calibration.steps:
        powers = stream.integers(_MOST - _LEAST, step.array.size).astype(np.float64) + _LEAST
        signs = 1.0 - 2.0 * stream.integers(2, step.array.size)
        parts.append(np.rint(signs * 2.0**powers / step.size).astype(np.int64))
    return StageResult.of(np.concatenate(parts), sites, rows)


def forged_questions(game: Game) -> list[tuple[Query, Calibration]]:
    """Return the queries and grids of all stages when every earlier answer is made up."""
    return [(talk.pending(), talk.calibrate()[0]) for talk, _ in _stages(game, read(document(game), 1))]


def _stages(game: Game, asked: ParsedAnalysis) -> Iterator[tuple[AnalysisSession, list[StageResult]]]:
    """Yield the coordinator's session at each stage, and the made-up results of the stages before."""
    if len(asked.stages) > 1 and not game.forged:
        raise CapeError("deployed sites are asked for several stages only with forged answers")
    talk, told = asked.session(), list[StageResult]()
    rows = sum(map(len, (game.tables.one, *game.tables.others)))
    yield talk, told
    for stage in range(len(asked.stages) - 1):
        told = [*told, forge(game.analysis, stage, talk.calibrate()[0], rows, asked.setting.parties.sites)]
        talk.tell(told[-1])
        yield talk, told
