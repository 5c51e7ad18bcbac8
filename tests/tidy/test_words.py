"""User-facing texts avoid phrases that readers stumble over or cannot search for.

Looks at pages as a whole, and in sources at docstrings, comments, texts and names alike: a phrase
in a name ends up in a log line sooner or later.
"""

from __future__ import annotations

import re
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]

# Files and folders that the rule holds.
HELD = (
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "README.md",
    "SECURITY.md",
    "benchmarks",
    "docker",
    "dev",
    "docs",
    "local_stack",
    "producer",
    "schemas",
    "spanner_simulator/CHANGELOG.md",
    "spanner_simulator/README.md",
    "spanner_simulator/docs",
    "spanner_simulator/src",
    "spark_consumer",
    "tests",
    "tidegate/__init__.py",
    "tidegate/lineage",
    "tidegate/program",
    "tidegate/version.py",
)

# Files below these that hold the phrases on purpose, each with the reason.
EXEMPT = {
    "tests/tidy/test_words.py": "lists the phrases",
}

SUFFIXES = (".md", ".py", ".txt", "")

# Each with what to write instead.
PHRASES = {
    r"anew": "again, or re-create, rebuild, rejoin",
    r"whoever": "name who: the operator, the process, the reader",
    r"who asks": "name the client",
    r"told|is not said|said nothing": "reported, printed, logged",
    r"tells? of": "describes, reports",
    r"mend(s|ed|ing)?": "fix",
    r"let(s|ting)? go( of)?": "release",
    r"(can|could|cannot|may|might) be had|to be had": "is available, failed to get",
    r"speaks? for": "covers, applies to",
    r"(belongs?|cost|known?) (to )?nobody": "is unassigned, costs nothing",
    r"nobody (knows|has|else|is|was|can|could|may|looks|asks)": "name who does not",
    r"(?<!there )(is|are|was|were|be) none(?! of)": "is not one, is invalid",
    r"hears? of|heard of": "is notified of",
    r"wants? to know": "requires",
    r"signs? for": "claims",
    r"unasked": "without a request",
    r"in vain": "without success; say what did not happen",
    r"what (has|have)? ?(came|come|comes|became|become) of": "the result of",
    r"makes? (nothing|something|much) of": "ignores, uses",
    r"for ever": "forever, permanently",
    r"homeless|worn|insist": "a standard word",
    r"see the (module|class)\.": "the contract itself",
    r"takes? back what": "moves backwards",
    r"throws? out|thrown out": "removed, fenced",
    r"goes? wrong": "fails",
    r"as it should": "say what is expected",
    r"the log says": "the log shows",
    r"of (our|its|his) own (accord|will)": "by itself",
}

PATTERN = re.compile(rf"\b({'|'.join(PHRASES)})(?!\w)", re.IGNORECASE)


def held_files() -> list[Path]:
    found: list[Path] = []
    for name in HELD:
        path = REPOSITORY / name
        found += sorted(path.rglob("*")) if path.is_dir() else [path]
    exempt = {REPOSITORY / name for name in EXEMPT}
    return [
        path for path in found if path.is_file() and path.suffix in SUFFIXES and path not in exempt
    ]


def phrases_in(text: str) -> list[str]:
    """Return the phrases of a text to avoid, each with its line.

    Line breaks count as spaces, and so do the underscores of a name.
    """
    # Python's None is not the word.
    joined = re.sub(r"\s*\n\s*(#:? |\| )?", lambda found: " " * len(found[0]), text)
    joined = joined.replace("None", "null").replace("_", " ")
    return [
        f"line {text.count(chr(10), 0, found.start()) + 1}: {' '.join(found[0].split())}"
        for found in PATTERN.finditer(joined)
    ]


def test_texts_are_plain():
    """Say what happened, then what to do."""
    found = {path: phrases_in(path.read_text()) for path in held_files()}

    assert {str(path.relative_to(REPOSITORY)): one for path, one in found.items() if one} == {}


def test_exempt_files_hold_phrases():
    assert [name for name in EXEMPT if not phrases_in((REPOSITORY / name).read_text())] == []


def test_phrases_are_found():
    texts = [
        "made anew",
        "The slots belong to\nnobody.",
        "# it is told what\n    # to do",
        "A file among them is none.",
        "no id could be had",
        "See the module.",
        "fail_told = 'is told'",
        "def test_a_lost_session_is_made_anew():",
        "self.let_go.wait()",
        "the worker let go of it",
        "Mend these",
        "they wait in vain",
    ]

    assert [text for text in texts if not phrases_in(text)] == []


def test_other_words_are_not():
    texts = [
        "is none of them",
        "x is None",
        "if there is none",
        "goals",
        "amendment",
        "recommend",
        "a lesson learned",
        "letting",
    ]

    assert [text for text in texts if phrases_in(text)] == []


def test_a_phrase_is_named_with_its_line():
    assert phrases_in("one\ntwo\nthree anew\n") == ["line 3: anew"]
