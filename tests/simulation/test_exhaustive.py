"""The small worlds, searched to their ends, and proof that the search would notice."""

from __future__ import annotations

import pytest

from tests.simulation.exhaustive.sameness import Names, copied
from tests.simulation.exhaustive.script import DEEP, SCENARIOS, Script
from tests.simulation.exhaustive.search import Fleet, explore
from tests.simulation.exhaustive.stage import Stage
from tests.simulation.mutants import MUTANTS

BY_NAME = {scenario.name: scenario for scenario in (*SCENARIOS, *DEEP)}
CAUGHT = [
    ("forget one parent of a merge", "merge, crash", "lineage"),
    ("a child started before the commit", "split, crash", "lineage"),
    ("a fence with no offset in it", "split, crash", "single_writer"),
    ("a commit of unknown outcome published again", "split, commit unanswered", "single_writer"),
    ("a vector without the last record", "split, markers apart", "watermark"),
    ("a snapshot in effect before its vector", "split, markers apart", "watermark"),
    ("a child forgotten when slots are read in another order", "split away, markers apart",
     "soundness"),
    ("release bound off by one", "split, consumer crash", "soundness"),
]  # fmt: skip


@pytest.mark.rule("P1", "P2", "P4", "P5")
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_no_order_of_actions_breaks_a_promise(scenario):
    outcome = explore(scenario)

    assert not outcome.found, "\n".join(" ".join(action) for action in outcome.trace)
    assert outcome.ends
    assert outcome.batches > outcome.pictures


@pytest.mark.parametrize(("name", "scenario", "checker"), CAUGHT, ids=[one[0] for one in CAUGHT])
def test_a_broken_core_is_caught(name, scenario, checker):
    mutant = next(one for one in MUTANTS if one.name == name)

    with mutant.applied():
        outcome = explore(BY_NAME[scenario])

    assert checker in outcome.found
    assert outcome.trace


def test_the_names_of_scenarios_are_distinct():
    scenarios = (*SCENARIOS, *DEEP)

    assert len({scenario.name for scenario in scenarios}) == len(scenarios)


def test_what_is_remembered_of_an_action_is_what_it_would_do_again():
    scenario = BY_NAME["split, commit unanswered"]
    outcome = explore(scenario)

    forgetful = explore(scenario, remembers=False)

    assert forgetful.executed > outcome.executed
    assert (forgetful.states, forgetful.steps) == (outcome.states, outcome.steps)
    assert (forgetful.ends, forgetful.ways) == (outcome.ends, outcome.ways)


def test_a_copy_goes_its_own_way():
    names = Names()
    stage = Stage.at_the_beginning(Script.of(BY_NAME["split, crash"]))
    before = stage.ground.key(names), *(actor.key(names) for actor in stage.actors.values())
    for actor in stage.actors.values():
        actor.detach()

    ground, actors = copied(stage.ground, {}), copied(stage.actors, {})
    other = Stage(stage.script, ground, actors)
    while True:
        actions = [one for actor in actors.values() for one in other.enabled(actor)]
        useful = [action for action in actions if action[0] != "begin"]
        if not useful:
            break
        other.do(useful[0])

    assert (ground.key(names), *(actor.key(names) for actor in actors.values())) != before
    assert before == (
        stage.ground.key(names),
        *(actor.key(names) for actor in stage.actors.values()),
    )


def test_a_fleet_begins_where_somebody_has_something_to_do():
    fleet = Fleet(Script.of(BY_NAME["split, crash"]))
    first = fleet.first()

    assert fleet.ordinary(first)
    assert {action[0] for action in fleet.faults(first)} == {"crash"}
