"""`./dev` before anything is installed: which Python it takes, and what it says is missing."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path

import pytest

SH = shutil.which("sh") or "/bin/sh"


@pytest.fixture
def tools(tmp_path) -> Path:
    """A folder that is all of PATH."""
    folder = tmp_path / "tools"
    folder.mkdir()
    return folder


@pytest.fixture
def run_dev(repository, tools, tmp_path):
    """Run `dev` from another folder, with an empty home and only `tools` on the path."""
    home = tmp_path / "home"
    home.mkdir()

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(repository / "dev"), *arguments],
            cwd=home,
            env={"PATH": str(tools), "HOME": str(home)},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return run


def add_script(tools: Path, name: str, script: str) -> None:
    (tools / name).write_text(f"#!{SH}\n{script}\n")
    (tools / name).chmod(0o755)


def add_python(tools: Path, name: str = "python3") -> None:
    add_script(tools, name, f'exec "{sys.executable}" "$@"')


@pytest.fixture(scope="module")
def dev(repository):
    """The Python in `dev`, as a module."""
    loader = SourceFileLoader("tidegate_dev", str(repository / "dev"))
    module = importlib.util.module_from_spec(
        importlib.util.spec_from_loader("tidegate_dev", loader)
    )
    before = list(sys.path)
    loader.exec_module(module)
    sys.path[:] = before
    return module


@pytest.mark.parametrize("name", ["python3", "python3.11", "python3.12", "python3.13", "python"])
def test_a_python_under_any_name_will_do(run_dev, tools, name):
    """An old one does not hide it."""
    add_script(tools, "python3", "exit 1")
    add_python(tools, name)
    done = run_dev("help")

    assert done.returncode == 0, done.stderr
    assert "demo" in done.stdout


def test_without_a_python_or_with_an_unknown_target_one_line_says_what_to_type(run_dev, tools):
    for target, text in (
        ("test", "apt-get install python3"),
        ("tset", "dev: no target 'tset'; ./dev help lists them"),
    ):
        done = run_dev(target)
        assert done.returncode == 2
        assert len(done.stderr.splitlines()) == 1
        assert text in done.stderr
        add_python(tools)


def test_check_and_a_dry_run_install_nothing_and_say_what_would_be(run_dev, tools, tmp_path):
    """With neither java, pip nor make on the path, and an empty home."""
    add_python(tools)
    done = run_dev("check")

    assert done.returncode == 0, done.stderr
    assert re.search(r"(missing|found): .*Java", done.stdout)
    assert "would be fetched: the JVM parts" in done.stdout
    assert list((tmp_path / "home").iterdir()) == []
    assert done.stdout == run_dev("--dry-run", "demo").stdout


def java_is_missing(dev, environ):
    return dev.missing_parts(environ, places=())


@pytest.mark.parametrize(
    ("java", "text"),
    [
        (None, "Java 17 to 21 is needed"),
        ("echo 'Unable to locate a Java Runtime.' >&2; exit 1", "no java was found that runs"),
        ("echo 'openjdk version \"23.0.1\"' >&2", "is Java 23"),
    ],
    ids=["none", "stub", "another version"],
)
def test_a_missing_java_is_named_with_its_packages(dev, tools, java, text):
    if java is not None:
        add_script(tools, "java", java)
    ((what, packages, formula),) = java_is_missing(dev, {"PATH": str(tools)})

    assert text in what
    assert packages == ("openjdk-17-jre-headless", "openjdk-21-jre-headless")
    assert formula == "openjdk@17"


def test_what_builds_images_is_named_with_the_command_that_installs_it(dev, tools):
    add_script(tools, "buildah", "")
    with pytest.raises(dev.Stop, match=r"^images are built as root; type: sudo \./dev images$"):
        dev.require_image_tools({"PATH": str(tools)}, uid=1_000)
    wanted = "^missing: debootstrap, runc; type: sudo apt-get install debootstrap runc$"
    with pytest.raises(dev.Stop, match=wanted) as stopped:
        dev.require_image_tools({"PATH": str(tools)}, uid=0)
    assert stopped.value.code == 2
    for name in ("debootstrap", "runc"):
        add_script(tools, name, "")
    dev.require_image_tools({"PATH": str(tools)}, uid=0)


def test_a_python_without_ensurepip_needs_the_venv_package(dev, tools):
    def find_spec(name):
        return None if name == "ensurepip" else importlib.util.find_spec(name)

    missing = dev.missing_parts({"PATH": str(tools)}, places=(), find_spec=find_spec)

    assert "the venv module of Python" == missing[0][0]
    assert "python3-venv" in missing[0][1]


@pytest.mark.parametrize(
    ("names", "uid", "expected"),
    [
        (("apt-get",), 0, ("apt", [])),
        (("apt-get", "sudo"), 1000, ("apt", ["sudo"])),
        (("brew",), 1000, ("brew", [])),
        ((), 1000, None),
    ],
)
def test_the_installer_is_that_of_the_machine(dev, tools, names, uid, expected):
    for name in names:
        add_script(tools, name, "exit 0")
    if expected is not None:
        kind, through = expected
        expected = kind, [str(tools / name) for name in through]
    assert dev.installer({"PATH": str(tools)}, uid=uid) == expected


@pytest.mark.parametrize(
    ("tool", "said"),
    [
        ("apt-get", "type: sudo apt-get install openjdk-17-jre-headless"),
        ("brew", "type: brew install openjdk@17"),
        ("other", "install with your system's packages"),
    ],
)
def test_what_to_type_fits_the_machine(dev, tools, monkeypatch, tool, said):
    monkeypatch.setattr(dev.sys, "platform", "linux")
    add_script(tools, tool, "exit 0")
    missing = java_is_missing(dev, {"PATH": str(tools)})

    assert said in dev.what_to_type(missing, {"PATH": str(tools)})


def test_what_cannot_be_installed_stops_with_one_line(dev, tools, monkeypatch):
    missing = java_is_missing(dev, {"PATH": str(tools)})
    monkeypatch.setattr(dev, "missing_parts", lambda: missing)
    monkeypatch.setattr(dev, "installer", lambda: None)

    with pytest.raises(dev.Stop) as caught:
        dev.install_missing()
    assert 2 == caught.value.code
    assert 1 == len(str(caught.value).splitlines())


@pytest.mark.parametrize(
    ("place", "file"),
    [("REQUIREMENTS", ""), ("SIMULATOR", "pyproject.toml"), ("ACCELERATOR", "module.c")],
)
def test_the_stamp_follows_what_is_installed(dev, monkeypatch, tmp_path, place, file):
    (tmp_path / (file or "dev.txt")).write_text("another\n")
    before = dev.stamp()
    monkeypatch.setattr(dev, place, tmp_path if file else tmp_path / "dev.txt")

    assert before != dev.stamp()


def test_the_environment_of_another_checkout_is_left_alone(dev, monkeypatch, tmp_path):
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "tidegate-stamp").write_text("theirs")
    (tmp_path / ".venv").symlink_to(tmp_path / "theirs")
    monkeypatch.setattr(dev, "VENV", tmp_path / ".venv")
    monkeypatch.setattr(dev, "STAMP", tmp_path / ".venv" / "tidegate-stamp")
    with pytest.raises(dev.Stop, match="theirs, which another checkout uses: remove the link"):
        dev.install_venv()
    assert dev.STAMP.read_text() == "theirs"


def test_an_environment_without_a_compiler_is_complete(dev, monkeypatch, tmp_path, capsys):
    commands = []
    monkeypatch.setattr(dev, "VENV", tmp_path / ".venv")
    monkeypatch.setattr(dev, "STAMP", tmp_path / "stamp")
    monkeypatch.setattr(dev, "_right_python", lambda: True)
    monkeypatch.setattr(dev, "shown", lambda _title, command, must=True: commands.append(command))
    monkeypatch.setattr(dev, "_succeeds", commands.append)
    dev.install_venv()

    assert commands[-1][-1] == str(dev.ACCELERATOR)
    assert capsys.readouterr().err.startswith("accelerator: not built")
    assert (tmp_path / "stamp").read_text() == dev.stamp()


@pytest.mark.parametrize(
    ("machine", "expected"),
    [
        (("", ""), ["installing uv", "installing x"]),
        (("uv", ""), ["installing x"]),
        (("", "installing uv"), ["installing uv", "installing x by pip"]),
        (("uv", "installing x"), ["installing x", "installing x by pip"]),
        (("an index", ""), ["installing x by pip"]),
    ],
    ids=["uv first", "uv is there", "no uv for this machine", "uv fails", "an index of pip's"],
)
def test_packages_are_installed_by_uv_or_else_by_pip(dev, monkeypatch, tmp_path, machine, expected):
    has, fails = machine
    commands = {}

    def shown(title, command, *, must=True):
        commands[title] = command
        assert must == ("by pip" in title)
        if title == "installing uv" and title != fails:
            (tmp_path / "uv").touch()
        return title != fails

    if has == "uv":
        (tmp_path / "uv").touch()
    monkeypatch.setattr(dev, "BIN", tmp_path)
    monkeypatch.setattr(dev, "_pip_has_an_index", lambda: has == "an index")
    monkeypatch.setattr(dev, "shown", shown)
    dev.install("x", dev.REQUIREMENTS)
    assert list(commands) == expected
    assert all("--require-hashes" in command for command in commands.values())
    last = commands[expected[-1]]
    assert last[-1] == str(dev.REQUIREMENTS)
    assert (last[0] == str(tmp_path / "uv")) == ("by pip" not in expected[-1])


def test_a_failed_step_shows_its_output(dev, capfd):
    with pytest.raises(dev.Stop, match="making failed"):
        dev.shown("making", [sys.executable, "-c", "raise SystemExit('the reason')"])

    assert "the reason" in capfd.readouterr().err


def test_where_the_time_of_an_installation_goes_is_printed(dev, capfd, monkeypatch):
    monkeypatch.setattr(dev, "QUIET_REPORT_S", 0)
    code = "import time; print('Collecting pyspark', flush=True); time.sleep(1.2)"
    dev.shown("installing", [sys.executable, "-c", code])

    lines = capfd.readouterr().err.splitlines()
    assert "installing, 0 s: Collecting pyspark" in lines
    assert lines[-1] == "installing: done, 1 s"
    assert dev.TOOK_S["installing"] == 1


def test_every_target_is_the_same_word_through_make_and_ci_runs_its_own(repository, dev):
    makefile = (repository / "Makefile").read_text()
    (targets,) = re.findall(r"^TARGETS := (.*)$", makefile, re.MULTILINE)
    assert set(dev.TARGETS) - {"help"} == set(targets.split())
    script = repository / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert "exec ./dev ci </dev/null" in script.read_text()
    if shutil.which("make") is None:
        return
    done = subprocess.run(
        ["make", "--no-print-directory", "help"],
        cwd=repository, capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    for name, text in dev.TARGETS.items():
        assert re.search(rf"^  {name} +{re.escape(text)}$", done.stdout, re.MULTILINE)


@pytest.fixture
def ctrl_c_is_heeded():
    """A shell without a terminal starts its background jobs with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c_is_heeded")
def test_a_program_that_fails_after_ctrl_c_has_code_130(dev, tmp_path):
    """Ctrl-C reaches the whole process group: the program, and `dev` that waits for it."""
    program = tmp_path / "program.py"
    program.write_text(
        "import os, signal, sys\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "os.kill(os.getppid(), signal.SIGINT)\n"
        "sys.exit(int(sys.argv[1]))\n"
    )

    assert dev.run([sys.executable, str(program), "2"]) == 130
    assert dev.run([sys.executable, str(program), "0"]) == 0


@pytest.mark.usefixtures("ctrl_c_is_heeded")
def test_ctrl_c_while_the_exit_code_is_taken_does_not_hide_it(dev, monkeypatch):
    waitpid = os.waitpid

    def taken(*arguments):
        found = waitpid(*arguments)
        signal.raise_signal(signal.SIGINT)
        return found

    monkeypatch.setattr(os, "waitpid", taken)

    assert dev.run([sys.executable, "-c", "raise SystemExit(2)"]) == 130


def test_a_program_over_its_limit_is_ended_and_shows_where_each_thread_is(dev, capfd):
    """It is in a call that keeps the GIL: no handler in Python would run."""
    code = (
        "import ctypes, faulthandler\n"
        "faulthandler.enable()\n"
        "def hang(): ctypes.PyDLL(None).sleep(60)\n"
        "hang()\n"
    )

    assert dev.run([sys.executable, "-c", code], limit_s=1.5) == 128 + signal.SIGABRT
    printed = capfd.readouterr()
    assert "over its limit of 1.5 s" in printed.out
    assert "in hang" in printed.err


def test_apt_is_asked_for_a_package_that_it_has(dev, tools, tmp_path, monkeypatch, capfd):
    """A system without Java 17 gets 21; packages are looked up after the lists are fresh."""
    add_script(tools, "apt-get", f'echo "apt-get $@" >> "{tmp_path}/calls"')
    add_script(tools, "apt-cache", '[ "$3" = openjdk-21-jre-headless ]')
    answers = [java_is_missing(dev, {"PATH": str(tools)}), []]
    monkeypatch.setenv("PATH", str(tools))
    monkeypatch.setattr(dev, "missing_parts", lambda: answers.pop(0))
    monkeypatch.setattr(dev, "installer", lambda: ("apt", []))

    dev.install_missing()

    assert [
        "apt-get update",
        "apt-get install -y --no-install-recommends openjdk-21-jre-headless",
    ] == (tmp_path / "calls").read_text().splitlines()
    assert "installing openjdk-21-jre-headless: done" in capfd.readouterr().err


def test_an_install_that_did_not_help_stops(dev, tools, monkeypatch):
    missing = java_is_missing(dev, {"PATH": str(tools)})
    add_script(tools, "apt-get", "exit 0")
    add_script(tools, "apt-cache", "exit 0")
    monkeypatch.setenv("PATH", str(tools))
    monkeypatch.setattr(dev, "missing_parts", lambda: missing)
    monkeypatch.setattr(dev, "installer", lambda: ("apt", []))

    with pytest.raises(dev.Stop, match="sudo apt-get install openjdk-17-jre-headless"):
        dev.install_missing()
