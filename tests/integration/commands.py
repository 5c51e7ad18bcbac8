"""Commands of both programs, with the settings of a pipeline's own processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.command_server import run_module

if TYPE_CHECKING:
    import subprocess

    from tidegate.local_stack.parts.programs import Program, Programs

__all__ = ["run_consumer", "run_producer"]

_PATIENCE_S = {"tidegate.producer": 240, "tidegate.spark_consumer": 600}


def run_producer(
    programs: Programs, *arguments: str, **environ: str
) -> subprocess.CompletedProcess[str]:
    """Run `tidegate-producer`; `environ` is added to its own."""
    return _run("tidegate.producer", programs.worker("unused", start="now"), arguments, environ)


def run_consumer(
    programs: Programs, *arguments: str, **environ: str
) -> subprocess.CompletedProcess[str]:
    """Run `tidegate-consumer`; `environ` is added to its own."""
    return _run("tidegate.spark_consumer", programs.consumer("unused"), arguments, environ)


def _run(
    module: str, program: Program, arguments: tuple[str, ...], environ: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    done = run_module(
        module,
        *arguments,
        environ={**(program.spec.environ or {}), **environ},
        folder=program.spec.folder,
        timeout_s=_PATIENCE_S[module],
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done
