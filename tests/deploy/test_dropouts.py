"""A site killed at any round costs that site, not the study; and it takes part again once it is back."""

from __future__ import annotations

import pytest

from tests.deploy.conftest import SITES, World, mean
from tests.deploy.jobs import kill_job

ROUNDS = ("advertise", "share", "mask", "consistency", "unmask")
MASKED = ("consistency", "unmask")  # from here on the vector of the site is in the sum


def plan(world: World, lines: list[str]) -> None:
    (world.here.site("d").path / "crash").write_text("".join(f"{line}\n" for line in lines))


def left(world: World) -> list[str]:
    return (world.here.site("d").path / "crash").read_text().splitlines()


def test_a_job_killed_at_each_round_costs_that_site_alone_and_it_is_back_in_the_next(world: World) -> None:
    count = len(ROUNDS) + 1
    study = world.study("killed-job", "".join(mean(1 / 8) for _ in range(count)), epsilon=8.0)
    lines = len(world.here.site("d").ledger.entries())
    plan(world, [f"{round_} before job" for round_ in ROUNDS])
    done = world.submit(study)
    assert done.returncode == 0, done.stderr
    assert not left(world), done.stderr
    assert "d was lost in round" in done.stderr
    found = world.results(study.stem)["analyses"]
    require_right(found)
    took_part = ["d" in each["participants"] for each in found]
    assert took_part == [round_ in MASKED for round_ in ROUNDS] + [True]
    # Each sum with d in it is in d's ledger; one in which it died right before masking may be, or not.
    assert sum(took_part) <= len(world.here.site("d").ledger.entries()) - lines <= count


@pytest.mark.parametrize("round_", ROUNDS)
def test_a_client_killed_at_a_round_costs_that_site_alone(world: World, round_: str) -> None:
    """The whole client, as by a power cut; `cape join` starts it again, and the next study has it back.

    That it was noticed shows in that `submit` ends: the aggregator's patience with the living is longer.
    """
    study = world.study(f"killed-client-{round_}", mean(1.0), epsilon=2.0)
    plan(world, [f"{round_} before client"])
    done = world.submit(study)
    assert done.returncode == 0, done.stderr
    assert not left(world), done.stderr
    found = world.results(study.stem)["analyses"]
    require_right(found)
    assert ("d" in found[0]["participants"]) == (round_ in MASKED)


@pytest.mark.parametrize("round_", ["share", "mask", "unmask"])
def test_a_daemon_killed_at_a_round_costs_that_site_alone(world: World, round_: str) -> None:
    """Its link stays, and shows no sign of life while the daemon is gone; then it finds the new one."""
    study = world.study(f"killed-daemon-{round_}", mean(0.5) + mean(0.5), epsilon=2.0)
    plan(world, [f"{round_} before daemon"])
    done = world.submit(study)
    assert done.returncode == 0, done.stderr
    assert not left(world), done.stderr
    found = world.results(study.stem)["analyses"]
    require_right(found)
    assert ("d" in found[0]["participants"]) == (round_ in MASKED)
    assert "d" not in found[1]["participants"]
    world.here.start_daemon("d")
    again = world.submit(world.study(f"back-{round_}", mean(1.0)))
    assert again.returncode == 0, again.stderr
    assert world.results(f"back-{round_}")["analyses"][0]["participants"] == list(SITES)


def require_right(found: list) -> None:
    for each in found:
        assert set(each["participants"]) >= {"a", "b", "c"}
        age = next(estimate for estimate in each["estimates"] if estimate["label"] == "age")
        assert age["value"] == pytest.approx(50, abs=6 * age["standard_error"])


def test_a_site_that_falls_silent_is_given_up_and_its_late_answer_changes_nothing(world: World) -> None:
    """As if its network were cut: it is stopped, not ended, and goes on when all is over."""
    study = world.study("silent", mean(0.5) + mean(0.5))
    plan(world, ["consistency before silent"])
    done = world.submit(study)
    assert done.returncode == 0, done.stderr
    found = world.results("silent")["analyses"]
    assert found[0]["participants"] == list(SITES)  # its vector was in
    assert kill_job(world.here, "d") >= 0


def test_too_few_sites_end_the_study_and_the_budget_says_what_it_cost(world: World) -> None:
    study = world.study("few", mean(0.25) + mean(0.25), min_sites=4)
    plan(world, ["mask before job"])
    done = world.submit(study)
    assert done.returncode == 1
    assert "the threshold is 4" in done.stderr or "min_sites" in done.stderr
    found = world.results("few")
    assert found["analyses"] == []
    assert found["budget"]["spent"] == 0.25  # a, b and c had sent theirs
