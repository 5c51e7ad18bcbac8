"""Command lines: each ends with a text on usage or settings, exit code 2, and starts nothing."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from typer.testing import CliRunner

from tidegate.local_stack.cli import app as local_app
from tidegate.producer.cli import app as producer_app
from tidegate.producer.config import ProducerConfig
from tidegate.schemas.errors import TidegateError
from tidegate.spark_consumer.cli import app as consumer_app
from tidegate.spark_consumer.config import ConsumerConfig

RUNNER = CliRunner()
FLAGS = sorted({f"--{name.replace('_', '-')}" for config in (ProducerConfig, ConsumerConfig)
                for name in config.model_fields})  # fmt: skip
WORDS = st.sampled_from(
    ["", "-", "--", "-1", "--[/x]", "[/red]", "[bold", "1" * 5_000, "9" * 30, "\ud800", "\0", "nan",
     "--config", "/", "no-such-file", "\x1b[2J", "--json", "--checkpoint", "a://b", *FLAGS]
) | st.text(max_size=8)  # fmt: skip


def ended(app, arguments):
    """The exit code as `run_program` gives it."""
    result = RUNNER.invoke(app, arguments)
    match result.exception:
        case None:
            return result.exit_code
        case SystemExit() as end:
            return end.code
        case TidegateError() as error:
            assert str(error)
            return error.exit_code
        case error:
            raise error


@given(st.sampled_from(["run", "check"]), st.lists(WORDS, max_size=5))
@example("run", ["--slots", "[/x]"])
@example("run", ["--config", "\0"])
@example("run", ["--start", "9999-12-31T23:59:59Z"])
def test_the_producers(command, arguments):
    """Too few settings to start anything, whatever else is there."""
    code = ended(producer_app, [command, *arguments, "--slots", "0"])
    assert code == 2 or (code == 0 and "--help" in arguments)


@given(st.lists(WORDS, max_size=5))
@example(["--output", "\ud800"])
def test_the_consumers_run(arguments):
    code = ended(consumer_app, ["run", *arguments, "--metrics-port", "-1"])
    assert code == 2 or (code == 0 and "--help" in arguments)


@given(st.lists(WORDS, max_size=4))
@example(["--checkpoint", "\0"])
@example(["--checkpoint", "\ud800"])
@example(["--checkpoint", ""])
def test_the_consumers_status(tmp_path_factory, arguments):
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.getbasetemp())
        code = ended(consumer_app, ["status", *arguments])
    assert code == 2 or (code == 0 and "--help" in arguments)


@given(st.lists(WORDS, min_size=1, max_size=5))
def test_the_local_stacks_options(arguments):
    code = ended(local_app, ["demo", *arguments, "--workers", "0"])
    assert code == 2 or (code == 0 and "--help" in arguments)
