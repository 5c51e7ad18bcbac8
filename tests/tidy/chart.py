"""What Helm makes of the chart, kept in the repository so that checking it needs no Helm.

`./dev chart` writes it.  Its first line has a hash of all that it is made from, so a test sees that
it is stale.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

__all__ = ["RENDERED", "first_line", "rendered"]

_HELM = Path(__file__).resolve().parents[2] / "deploy" / "helm"
RENDERED = _HELM / "rendered.yaml"
_VALUES = _HELM / "example-values.yaml"
_KUBERNETES = "1.30.0"


def first_line() -> str:
    """Return the comment that names what the rendered file is made from."""
    digest = hashlib.sha256()
    for path in sorted(
        [_VALUES, *(one for one in (_HELM / "tidegate").rglob("*") if one.is_file())]
    ):
        digest.update(f"{path.relative_to(_HELM)}\n".encode() + path.read_bytes())
    return f"# Made by ./dev chart from example-values.yaml; sources {digest.hexdigest()[:16]}\n"


def rendered(helm: str) -> str:
    """Return the manifests; raises CalledProcessError if Helm refuses the chart."""
    command = [helm, "template", "bridge", str(_HELM / "tidegate"), "-f", str(_VALUES)]
    command += ["--kube-version", _KUBERNETES]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return first_line() + done.stdout


def main() -> int:
    helm = shutil.which("helm")
    if helm is None:
        sys.stderr.write(
            "helm is needed; type: go install helm.sh/helm/v3/cmd/helm@v3.19.0, "
            "and put its folder on PATH\n"
        )
        return 2
    RENDERED.write_text(rendered(helm))
    return 0


if __name__ == "__main__":
    sys.exit(main())
