"""The console as a web application: routes, sign-in, and the headers that a browser obeys."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable
from functools import cache
from http.cookies import CookieError, SimpleCookie
from importlib.resources import files
from urllib.parse import parse_qs, urlsplit
from wsgiref.types import StartResponse, WSGIEnvironment

from tidegate.producer.cli.console.config import is_loopback
from tidegate.producer.cli.console.pages import Pages

_HTML = "text/html; charset=utf-8"
_STATIC = {
    "console.css": "text/css; charset=utf-8",
    "console.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
_POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
_HEADERS = [
    ("Content-Security-Policy", _POLICY),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cache-Control", "no-store"),
]
_COOKIE = "tidegate_console"
_FORM_BYTES_MAX = 4_096


class Application:
    """A WSGI application; any thread may call it.

    With a token, a browser signs in once and a script sends `Authorization: Bearer`.  Without one
    only requests that name this machine are answered, because a page of another site may know the
    port.
    """

    def __init__(self, pages: Pages, *, token: str) -> None:
        """Serve the pages; an empty token means that there is no sign-in."""
        self._pages = pages
        self._token = token
        self._cookie = hashlib.sha256(f"tidegate console {token}".encode()).hexdigest()

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Answer a request."""
        status, headers, body = self._answer(environ)
        length = ("Content-Length", str(len(body)))
        start_response(status, [*headers, *_HEADERS, length])
        return [] if environ["REQUEST_METHOD"] == "HEAD" else [body]

    def _answer(self, environ: WSGIEnvironment) -> tuple[str, list[tuple[str, str]], bytes]:
        path, method = environ.get("PATH_INFO") or "/", environ["REQUEST_METHOD"]
        if not self._token and not is_loopback(_host(environ)):
            return _text("403 Forbidden", "The console answers to 127.0.0.1 and localhost only")
        if path.startswith("/static/"):
            name = path.removeprefix("/static/")
            if name not in _STATIC:
                return _text("404 Not Found", "There is no such file")
            return _static(name)
        if path == "/sign-in" and method == "POST":
            return self._sign_in(environ)
        if method not in ("GET", "HEAD"):
            return _text("405 Method Not Allowed", "The console only shows")
        if self._token and not self._is_known(environ):
            return _html("401 Unauthorized", self._pages.sign_in(is_wrong=False))
        page = self._pages.by_path.get(path)
        if page is None:
            return _text("404 Not Found", f"Pages: {', '.join(self._pages.by_path)}")
        query = parse_qs(environ.get("QUERY_STRING", ""), keep_blank_values=True)
        return _html("200 OK", page({name: values[-1] for name, values in query.items()}))

    def _is_known(self, environ: WSGIEnvironment) -> bool:
        scheme, _, given = environ.get("HTTP_AUTHORIZATION", "").partition(" ")
        if scheme.lower() == "bearer":
            return hmac.compare_digest(given.strip().encode(), self._token.encode())
        try:
            cookies = SimpleCookie(environ.get("HTTP_COOKIE", ""))
        except CookieError:
            return False
        cookie = cookies.get(_COOKIE)
        return cookie is not None and hmac.compare_digest(
            cookie.value.encode(), self._cookie.encode()
        )

    def _sign_in(self, environ: WSGIEnvironment) -> tuple[str, list[tuple[str, str]], bytes]:
        try:
            # A negative length would read the body without a limit.
            length = min(max(int(environ.get("CONTENT_LENGTH") or 0), 0), _FORM_BYTES_MAX)
        except ValueError:
            length = 0
        form = parse_qs(environ["wsgi.input"].read(length).decode(errors="replace"))
        given = form.get("token", [""])[-1]
        if not self._token or not hmac.compare_digest(given.encode(), self._token.encode()):
            return _html("401 Unauthorized", self._pages.sign_in(is_wrong=True))
        cookie = f"{_COOKIE}={self._cookie}; Path=/; HttpOnly; SameSite=Strict"
        return "303 See Other", [("Location", "/"), ("Set-Cookie", cookie)], b""


def _host(environ: WSGIEnvironment) -> str:
    """Return the host that a request names, without its port."""
    try:
        return urlsplit(f"//{environ.get('HTTP_HOST', '')}").hostname or ""
    except ValueError:
        return ""


@cache
def _static(name: str) -> tuple[str, list[tuple[str, str]], bytes]:
    """Return a file of `_STATIC`; other names are never cached."""
    content = files("tidegate.producer.cli.console").joinpath("static", name).read_bytes()
    return "200 OK", [("Content-Type", _STATIC[name])], content


def _html(status: str, page: str) -> tuple[str, list[tuple[str, str]], bytes]:
    return status, [("Content-Type", _HTML)], page.encode(errors="backslashreplace")


def _text(status: str, line: str) -> tuple[str, list[tuple[str, str]], bytes]:
    return status, [("Content-Type", "text/plain; charset=utf-8")], f"{line}\n".encode()
