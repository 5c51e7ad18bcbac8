"""Servers that issue what clouds issue: Google's and AWS's metadata of a host, AWS's STS.

One server for all three; credentials live for as long as a test wants, and each has a number.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import parse_qs, urlsplit

ACCOUNT = "fleet@bank.iam.gserviceaccount.com"
ACCESS_TOKEN = "ya29.fleet"
KEY_ID = "ASIAFLEET"
SECRET_KEY = "aws-secret-4711"
_FLAVOR = "Metadata-Flavor"
_IMDS = "/latest/meta-data/iam/security-credentials/"
_STS = """<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">
<AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>{key}</AccessKeyId>
<SecretAccessKey>{secret}</SecretAccessKey><SessionToken>session</SessionToken>
<Expiration>{until}</Expiration></Credentials></AssumeRoleWithWebIdentityResult>
</AssumeRoleWithWebIdentityResponse>"""


class Cloud(ThreadingHTTPServer):
    """Issues credentials of `seconds`; while `is_down`, none."""

    daemon_threads = True

    def __init__(self, seconds=20):
        super().__init__(("127.0.0.1", 0), _Answer)
        self.seconds = seconds
        self.issued = 0
        self.is_down = False
        self.ends_at_s = {}

    @property
    def address(self):
        return f"127.0.0.1:{self.server_port}"

    def is_valid(self, token):
        """Whether a token of Google's was issued here and has not expired."""
        return self.ends_at_s.get(token, 0) > time.time()

    @property
    def google(self):
        """The variables by which Google's libraries find it."""
        return {
            "GCE_METADATA_HOST": self.address,
            "GCE_METADATA_IP": self.address,
            "GOOGLE_APPLICATION_CREDENTIALS": "",
            "CLOUDSDK_CONFIG": os.devnull,
        }

    @property
    def aws(self):
        """The variables by which AWS's libraries find it, as on EC2."""
        return {
            "AWS_EC2_METADATA_SERVICE_ENDPOINT": f"http://{self.address}/",
            "AWS_REGION": "eu-north-1",
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        }

    def sts(self, token_file):
        """The variables by which AWS's libraries find it, as in EKS."""
        return {
            **self.aws,
            "AWS_ENDPOINT_URL_STS": f"http://{self.address}/sts",
            "AWS_WEB_IDENTITY_TOKEN_FILE": str(token_file),
            "AWS_ROLE_ARN": "arn:aws:iam::123456789012:role/fleet",
        }


class _Answer(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        """Print nothing."""

    def do_GET(self):
        cloud, path = self.server, urlsplit(self.path).path
        if cloud.is_down:
            self._send(503, "down")
        elif path.endswith("/token"):
            cloud.issued += 1
            value = f"{ACCESS_TOKEN}.{cloud.issued}"
            cloud.ends_at_s[value] = time.time() + cloud.seconds
            token = {"access_token": value, "token_type": "Bearer"}
            self._send(200, json.dumps({**token, "expires_in": cloud.seconds}))
        elif path.endswith("/email"):
            self._send(200, ACCOUNT, "text/plain")
        elif path == _IMDS:
            self._send(200, "fleet", "text/plain")
        elif path.startswith(_IMDS):
            cloud.issued += 1
            self._send(200, json.dumps({"Code": "Success", "Type": "AWS-HMAC", **self._keys()}))
        elif path.startswith("/computeMetadata/") and "service-accounts" in path:
            account = {"email": ACCOUNT, "scopes": [], "aliases": ["default"]}
            is_list = path.endswith("service-accounts/")
            self._send(200, json.dumps({"default": account} if is_list else account))
        else:
            self._send(200, "bank", "text/plain")

    def do_PUT(self):
        self._send(200, "session-of-imds", "text/plain")

    def do_POST(self):
        asked = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        if self.server.is_down or asked.get("WebIdentityToken") != ["of-the-pod"]:
            self._send(503, "down")
            return
        self.server.issued += 1
        keys = self._keys()
        text = _STS.format(key=KEY_ID, secret=SECRET_KEY, until=keys["Expiration"])
        self._send(200, text, "text/xml")

    def _keys(self):
        until = datetime.now(UTC) + timedelta(seconds=self.server.seconds)
        return {
            "AccessKeyId": KEY_ID,
            "SecretAccessKey": SECRET_KEY,
            "Token": "session",
            "LastUpdated": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "Expiration": until.strftime("%Y-%m-%dT%H:%M:%SZ"),
        }

    def _send(self, status, text, kind="application/json"):
        body = text.encode()
        self.send_response(status)
        self.send_header(_FLAVOR, "Google")
        self.send_header("X-aws-ec2-metadata-token-ttl-seconds", "21600")
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def cloud(seconds=20):
    """Yield a server of credentials."""
    server = Cloud(seconds)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def in_python(code, environ):
    """Return what a program prints; libraries read the address of a metadata server once."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def wait_past(moment_s):
    """Return when a time in Unix seconds is over."""
    while time.time() < moment_s:
        time.sleep(0.05)
