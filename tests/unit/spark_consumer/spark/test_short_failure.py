"""What reaches Spark of an error of the batch function."""

import re
import traceback

import pytest

from tidegate.spark_consumer.errors import RunStopped
from tidegate.spark_consumer.spark.short_failure import BatchFailed, with_short_failures

CALLING = "py4j.protocol.Py4JJavaError: An error occurred while calling"
# Spark's, of StreamExecution.
OF_SPARK = re.compile(
    CALLING + r"((.|\r\n|\r|\n)*)(java.lang.InterruptedException|java.io.InterruptedIOException"
    r"|java.nio.channels.ClosedByInterruptException)"
)


class Py4JJavaError(Exception):
    """As py4j's, which needs a JVM."""

    __module__ = "py4j.protocol"


def of_spark(error):
    """Return the text that py4j makes for Java of what the function raises."""

    def batch(_rows, _number):
        raise error

    try:
        with_short_failures(batch)(None, 0)
    except BatchFailed:
        return traceback.format_exc()


def chained(name, lines):
    java = Py4JJavaError(
        "An error occurred while calling o1.run.\n: " + "\tat a.b\n" * lines + name + "\n"
    )
    found = ValueError("a sink failed")
    found.__cause__ = java
    return found


@pytest.mark.parametrize(
    "name",
    [
        "java.lang.InterruptedException",
        "java.io.InterruptedIOException",
        "java.nio.channels.ClosedByInterruptException",
    ],
)
def test_an_interruption_is_still_one_for_spark_and_short(name):
    text = of_spark(chained(name, 10_000))
    assert OF_SPARK.search(text) is not None
    assert len(text.partition(CALLING)[2]) < 100


def test_of_any_other_error_spark_gets_the_class_and_the_beginning():
    text = of_spark(chained("org.apache.spark.SparkException", 10_000))
    assert "ValueError: a sink failed" in text
    assert CALLING not in text
    assert OF_SPARK.search(text) is None
    assert len(of_spark(Py4JJavaError("x" * 100_000))) < 3_000
    assert RunStopped.__name__ in of_spark(RunStopped("the run is stopping"))


def test_what_ends_the_process_is_passed_on():
    def batch(_rows, _number):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        with_short_failures(batch)(None, 0)


def test_a_batch_without_an_error_is_called_as_it_is():
    calls = []
    with_short_failures(lambda rows, number: calls.append((rows, number)))("rows", 7)
    assert calls == [("rows", 7)]
