"""A burst of lines, then one for each interval, with the number of those left out."""

from tidegate.producer.driver.line_rate import LineRate

SECOND_US = 1_000_000


def test_a_burst_passes_and_the_rest_is_counted():
    rate = LineRate(burst=3, interval_us=10 * SECOND_US)
    assert [rate.admit(5) for _ in range(6)] == [0, 0, 0, None, None, None]

    assert rate.admit(5 + 10 * SECOND_US) == 3
    assert rate.admit(6 + 10 * SECOND_US) is None


def test_after_a_pause_the_burst_is_back():
    rate = LineRate(burst=2, interval_us=10 * SECOND_US)
    for _ in range(5):
        rate.admit(0)

    assert [rate.admit(60 * SECOND_US) for _ in range(3)] == [3, 0, None]


def test_an_outage_of_an_hour_writes_a_line_per_interval():
    rate = LineRate()
    written = [now for now in range(0, 3_600 * SECOND_US, SECOND_US) if rate.admit(now) is not None]

    assert 360 <= len(written) <= 365
