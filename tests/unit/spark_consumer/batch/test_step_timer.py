"""The stopwatch of a batch's steps."""

from tidegate.spark_consumer.batch.step_timer import StepTimer


def test_each_step_lasts_until_the_next_and_those_of_one_name_are_added_up():
    times_s = iter([10.0, 11.0, 13.0, 13.5, 20.0])
    timer = StepTimer(lambda: next(times_s))
    for step in ("load", "plan", "load", "state"):
        timer.begin(step)
    assert timer.end() == {"load": 1.5, "plan": 2.0, "state": 6.5}


def test_without_steps_nothing_took_time():
    assert StepTimer(lambda: 1.0).end() == {}
