"""Faults of the product, each without one of its defences, for tests of attacks: see test_attacks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from assurance.attacks import again
from cape.engine.calibration import RESOLUTION, calibrate
from cape.engine.schemes import Parties
from cape.engine.schemes import cape as scheme
from cape.engine.stages import Stages
from cape.privacy.ladder import ladder
from cape.secagg import Aggregator, Site, SiteState, states
from cape.secagg import messages as m
from cape.secagg.chain import Chain
from cape.secagg.keys import Verifier, derive, digest
from cape.secagg.neighbours import Neighbourhood
from cape.secagg.parameters import Parameters
from cape.secagg.surplus import Surplus, SurplusKey
from cape.site import Entry, Ledger, Limit, Offer, SiteFolder, endpoint, wire
from cape.site.decide import decide as steward
from cape.site.decide import grant as grants
from cape.site.decide import review as policy_review
from cape.site.decide.approvals import Approvals
from cape.site.decide.nonces import Nonces
from cape.site.decide.replay import Sessions
from cape.site.envelope import Envelope
from cape.site.ledger import ledger as ledgers
from tests.unit.secagg.planted import same_keys_in_every_step

Patch = pytest.MonkeyPatch
Planted = Callable[[Patch], None]


def nothing_is_signed(patch: Patch) -> None:
    patch.setattr(Verifier, "check", lambda *arguments: None)


def requests_need_no_signature(patch: Patch) -> None:
    patch.setattr(Envelope, "verify", lambda self, label: None)


def any_roster(patch: Patch) -> None:
    patch.setattr(steward, "check_roster", lambda *arguments: None)


def any_parties(patch: Patch) -> None:
    patch.setattr(policy_review, "_check_parties", lambda *arguments: None)


def the_threshold_of_a_curious_aggregator(patch: Patch) -> None:
    patch.setattr(Parties, "threshold", property(lambda self: 3))
    patch.setattr(Parties, "lying", property(lambda self: True))
    patch.setattr("cape.secagg.parameters.smallest_threshold", lambda *arguments, **more: 2)
    patch.setattr(scheme, "_ladder", lambda parties: ladder(parties.sites, parties.colluding, 3))
    patch.setattr(scheme, "_surplus", scheme._surplus.__wrapped__)  # not the one that is remembered


def a_site_signs_two_lists(patch: Patch) -> None:
    """It takes a second list of survivors after the first, and forgets nothing."""
    again = {(state, m.Survivors): SiteState.AGREED for state in (SiteState.AGREED, SiteState.DONE)}
    patch.setattr(states, "TRANSITIONS", dict(states.TRANSITIONS) | again)
    patch.setattr(Site, "_forget_before", lambda self, step: self._chain.advance(step))
    patch.setattr(endpoint._Session, "over", False)
    real = Site.handle

    def handle(self: Site, data: bytes) -> bytes:
        back = self._transcript
        if self.state in (SiteState.AGREED, SiteState.DONE) and b"survivors" in data[:16]:
            self._transcript = m.at_step(self._setup or b"", self._step)
        try:
            return real(self, data)
        except Exception:
            self._transcript = back
            raise

    patch.setattr(Site, "handle", handle)


def one_line_pays_for_all(patch: Patch) -> None:
    """A run that is in the ledger is answered again, and its sessions may be opened again."""
    real = Ledger.reserve

    def reserve(self: Ledger, entry: Entry, limits: Sequence[Limit] = (), once: int | None = None) -> int:
        return 1 if self.begun(entry.run, entry.coordinator) else real(self, entry, limits, once)

    patch.setattr(Ledger, "reserve", reserve)
    patch.setattr(Ledger, "has", lambda self, run, stage, coordinator: False)
    patch.setattr(Ledger, "claim", lambda self, session: None)


def no_limits(patch: Patch) -> None:
    patch.setattr(ledgers, "require_covered", lambda *arguments: None)
    patch.setattr(again, "_MOST", 5)


def studies_without_a_budget(patch: Patch) -> None:
    """The policy's limits alone count."""
    patch.setattr(steward, "limits_of", lambda policy, asked, study_hash: policy.limits)


def closed_runs_go_on(patch: Patch) -> None:
    patch.setattr(Ledger, "close", lambda *arguments: None)


def the_grid_of_the_request(patch: Patch) -> None:
    real = Sessions.at

    def at(self: Sessions, request, asked):
        session = real(self, request, asked)
        calibration, local_std = session.calibrate()
        grid = request.grid or [(step.bits, step.factor) for step in calibration.steps]
        steps = [
            replace(step, bits=bits, factor=factor)
            for step, (bits, factor) in zip(calibration.steps, grid, strict=True)
        ]
        session._calibrated = replace(calibration, steps=tuple(steps)), local_std
        return session

    patch.setattr(Sessions, "at", at)
    patch.setattr(steward, "same_grid", lambda *arguments: None)


def no_noise(patch: Patch) -> None:
    patch.setattr("cape.engine.contribution.add_noise", lambda vector, part, stream: vector)


def a_tenth_of_the_price(patch: Patch) -> None:
    real = steward.price

    def cheap(*arguments):
        cost, once = real(*arguments)
        return replace(cost, mu_squared=cost.mu_squared / 10), once

    patch.setattr(steward, "price", cheap)


def any_bounds(patch: Patch) -> None:
    for module in (steward, policy_review):
        patch.setattr(module, "check_columns", lambda *arguments: None)


def inquiries_need_no_signature(patch: Patch) -> None:
    patch.setattr(wire.Inquiry, "verify", lambda self: None)


def a_run_is_anybodys(patch: Patch) -> None:
    patch.setattr("cape.site.ledger.ledger._closed", lambda run, coordinator: run)
    patch.setattr(
        Ledger,
        "has",
        lambda self, run, stage, coordinator: any((run, stage) == (e.run, e.stage) for e in self.entries()),
    )


def any_seed(patch: Patch) -> None:
    patch.setattr(Aggregator, "_opens_commitment", lambda *arguments: True)


def any_surplus_key(patch: Patch) -> None:
    """The aggregator subtracts what follows from whatever is revealed."""

    def accept(self: Aggregator, message: m.Reveal, name: str) -> None:
        said, site, key = self.parameters, message.sender, message.surplus
        level = said.surplus.kept(said.sites - len(self._survivors))
        self._revealed[site] = SurplusKey(said.surplus, said.digest(), site, self._step, level, key)

    patch.setattr(Aggregator, "_accept_surplus", accept)


def _keep_level(patch: Patch, level: Callable[[Site, m.Survivors], int]) -> None:
    """Let a site that signs a list keep the surplus key of another level."""
    real = Site._agree

    def agree(self: Site, message: m.Survivors) -> bytes:
        key = self._surplus
        assert key is not None
        answer = real(self, message)
        self._surplus = key.at(level(self, message))
        return answer

    patch.setattr(Site, "_agree", agree)


def every_part_is_revealed(patch: Patch) -> None:
    _keep_level(patch, lambda site, message: 0)


def losses_counted_by_the_list(patch: Patch) -> None:
    """Who never shared is not on the list of those who dropped, and does not count as missing."""
    _keep_level(patch, lambda site, message: site.parameters.surplus.kept(len(message.dropped)))


def losses_counted_by_signatures(patch: Patch) -> None:
    """As many sites are in the sum as signatures came, counted twice where one came twice."""
    every_part_is_revealed(patch)
    real = Site._reveal

    def reveal(self: Site, message: m.Consents) -> bytes:
        assert self._surplus is not None
        missing = max(0, self.parameters.sites - len(message.consents))
        self._surplus = self._surplus.at(self.parameters.surplus.kept(missing))
        return real(self, message)

    patch.setattr(Site, "_reveal", reveal)


def nobody_counts_signatures(patch: Patch) -> None:
    signatures_alone_keep_lists_apart(patch)
    real = Site._require_enough

    def require(self: Site, count: int, did: str) -> None:
        if not did.startswith("signed"):
            real(self, count, did)

    patch.setattr(Site, "_require_enough", require)


def sharers_need_not_advertise(patch: Patch) -> None:
    real = Site._opened

    def opened(self: Site, message: m.Delivery):
        self._advertised = frozenset(range(self.parameters.sites))
        return real(self, message)

    patch.setattr(Site, "_opened", opened)


def one_helper_is_enough(patch: Patch) -> None:
    """A sparse graph on which any neighbour gives a secret away."""
    patch.setattr("cape.secagg.parameters._neighbourhood", lambda _, n, *rest: Neighbourhood(8, 1, 0.0))


def one_surplus_for_all_steps(patch: Patch) -> None:
    same_keys_in_every_step(patch)
    patch.setattr(Chain, "surplus", lambda self: derive(self._link, self._run, "step surplus"))
    patch.setattr(
        SurplusKey,
        "_derived",
        lambda self, label: derive(self.secret, self.run, label, self.site, self.level),
    )


def any_key(patch: Patch) -> None:
    patch.setattr(Aggregator, "_has_public_key", lambda *arguments: True)


def any_number_of_survivors(patch: Patch) -> None:
    """Beside two lists, lists of any length: what two sites that collude with each other would sign."""
    a_site_signs_two_lists(patch)
    for check in ("_require_enough", "_require_committee"):
        patch.setattr(Site, check, lambda *arguments: None)
    kept = Surplus.kept
    patch.setattr(Surplus, "kept", lambda self, lost: kept(self, min(lost, self.losses[-1])))


def any_threshold(patch: Patch) -> None:
    any_parties(patch)
    patch.setattr("cape.secagg.parameters.smallest_threshold", lambda *arguments, **more: 2)


def a_vector_is_masked_twice(patch: Patch) -> None:
    """It keeps its vector and its secrets after it has masked it, and takes a second delivery."""
    patch.setattr(
        states, "TRANSITIONS", dict(states.TRANSITIONS) | {(SiteState.MASKED, m.Delivery): SiteState.MASKED}
    )
    real = Site._mask

    def mask(self: Site, message: m.Delivery | m.Begin) -> bytes:
        vector, link = self._vector, self._chain._link
        answer = real(self, message)
        self._vector, self._chain._link, self._chain.step = vector, link, self._step
        return answer

    patch.setattr(Site, "_mask", mask)


def less_noise_for_whoever_says_so(patch: Patch) -> None:
    real = Sessions.at

    def at(self: Sessions, request, asked):
        session = real(self, request, asked)
        calibration, local_std = session.calibrate()
        if any(request.earlier) and any(request.earlier[0].total):
            session._calibrated = calibration, local_std / 2
        return session

    patch.setattr(Sessions, "at", at)
    patch.setattr(policy_review, "_CLOSE", 10.0)


def sealed_alike_both_ways(patch: Patch) -> None:
    """What a site seals for another opens as what that one sealed for it."""
    patch.setattr(
        "cape.secagg.site.derive",
        lambda secret, transcript, label, *pair: derive(secret, transcript, label, *sorted(pair)),
    )


def signatures_alone_keep_lists_apart(patch: Patch) -> None:
    """As few helpers as on a sparse graph, where the number of shares does not keep two lists apart."""
    patch.setattr("cape.secagg.parameters._neighbourhood", lambda _, n, *rest: Neighbourhood(n - 1, 3, 0.0))


def lists_that_nobody_signs(patch: Patch) -> None:
    signatures_alone_keep_lists_apart(patch)
    nothing_is_signed(patch)


def parameters_are_bound_to_nothing(patch: Patch) -> None:
    patch.setattr(Parameters, "digest", lambda self: digest("parameters", self.run, self.roster.digest()))


def messages_are_bound_to_nothing(patch: Patch) -> None:
    """One transcript for all runs, lists and steps."""
    patch.setattr(Parameters, "digest", lambda self: bytes(32))
    for after in ("after_adverts", "after_shares", "at_step", "after_masked"):
        patch.setattr(m, after, lambda transcript, *rest: transcript)
    patch.setattr(m, "require_run", lambda *arguments: None)


def rounds_in_any_order(patch: Patch) -> None:
    after = {
        kind: state
        for (_, kind), state in states.TRANSITIONS.items()
        if isinstance(state, SiteState) and isinstance(kind, type)
    }
    anywhere = {(state, kind): after[kind] for state in SiteState for kind in after}
    patch.setattr(states, "TRANSITIONS", dict(states.TRANSITIONS) | anywhere)
    real = Site._agree

    def agree(self: Site, message: m.Survivors) -> bytes:
        self._surplus = self._surplus or self._surplus_key()  # it has none before its vector
        return real(self, message)

    patch.setattr(Site, "_agree", agree)


def a_study_is_paid_for_once(patch: Patch) -> None:
    """A second run of a study that is in the ledger costs nothing."""
    real = Ledger.reserve

    def reserve(self: Ledger, entry, limits=(), once=None):
        paid = any(line.study_hash == entry.study_hash for line in self.entries())
        return 1 if paid else real(self, entry, limits, once)

    patch.setattr(Ledger, "reserve", reserve)


def one_grid_for_every_price(patch: Patch) -> None:
    """The grid is that of the whole budget; who pays less has more noise on it, and counts on others'."""
    real = Stages.calibrate

    def on_one_grid(self: Stages, stage, query):
        calibration, local_std = real(self, stage, query)
        fine = calibrate(query, self.setting.schema, self.setting.local_std(self.scheme, 1.0))
        return replace(calibration, steps=fine.steps), local_std

    def answer(grant, table, stream=None):
        vector = grants.answer(grant, table, stream)
        exact = grant.calibration.encode([part for parts in table.sums(grant.query.blocks) for part in parts])
        noise = grant.calibration.local_noise * grant.query.flat_scales[0]
        return exact + round(noise / grant.calibration.steps[0].size / RESOLUTION) * (vector - exact)

    patch.setattr(Stages, "calibrate", on_one_grid)
    patch.setattr("cape.site.folder.answer", answer)


def requests_are_forgotten(patch: Patch) -> None:
    patch.setattr(Nonces, "take", lambda *arguments, **named: None)


def an_offer_holds(patch: Patch) -> None:
    """Policy, ledger and limits are looked at when a run begins, and not again when its vector leaves."""
    offers = {}
    consider, reserve = SiteFolder.consider, Ledger.reserve

    def once(self: SiteFolder, data):
        found = consider(self, data)
        if isinstance(found, Offer):
            offers[self.path, found.request.nonce] = found
        return found

    patch.setattr(SiteFolder, "consider", once)
    patch.setattr(SiteFolder, "reconsider", lambda self, request: offers[self.path, request.nonce])
    patch.setattr(Ledger, "reserve", lambda self, entry, limits=(), once=None: reserve(self, entry))


def studies_are_approved_by_name(patch: Patch) -> None:
    patch.setattr(
        Approvals,
        "approved",
        lambda self, request, needed, answers: next(iter(self.studies("approved")), None),
    )
