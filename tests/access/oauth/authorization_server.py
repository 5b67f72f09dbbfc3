"""A small and strict OAuth 2.1 authorization server on loopback, which approves whatever is asked for correctly.

Metadata (RFC 8414, OpenID), keys that rotate, dynamic client registration (RFC 7591), authorization codes with PKCE,
refresh tokens that rotate, `resource` (RFC 8707) as the audience, `iss` in its answers (RFC 9207).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from html import escape
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from tests.access.oauth.signing import SigningKey
from tests.index.serving import served

SCOPES = ("read", "write", "admin")
CODE_SECONDS = 60


class OAuthError(Exception):
    """A refusal in the words of RFC 6749. `redirect`: where the client learns of it, if that is known to be its own."""

    def __init__(self, error: str, description: str, *, status: int = 400, redirect: str | None = None) -> None:
        super().__init__(f"{error}: {description}")
        self.error = error
        self.description = description
        self.status = status
        self.redirect = redirect


@dataclass(frozen=True)
class Client:
    """Who registered."""

    id: str
    redirect_uris: tuple[str, ...]
    method: str
    secret: str | None
    grants: tuple[str, ...]
    scopes: frozenset[str]


@dataclass(frozen=True)
class Grant:
    """What the user approved. `family`: all tokens that come of it."""

    client: str
    user: str
    scopes: tuple[str, ...]
    resource: str | None
    family: str


@dataclass(frozen=True)
class Code:
    """An authorization code that was given out."""

    grant: Grant
    redirect_uri: str
    challenge: str
    expires: float


class AuthorizationServer:
    """Everything about it may be changed while it runs.

    `user`: who is logged in. `keys`: the published ones; the first signs. `down`: every answer is a 503. `documents`:
    which metadata is there. `lifetime`: seconds of an access token. `denies`: the user approves nothing. `asks`:
    the user approves with a click.
    `token_claims`: changes of the claims of every token. `asked` counts requests by path.
    """

    def __init__(self, *, path: str = "", scope_prefix: str = "") -> None:
        self.path = path
        self.scopes = tuple(scope_prefix + scope for scope in SCOPES)
        self.issuer = ""
        self.user = "alice"
        self.keys = [SigningKey()]
        self.down = False
        self.documents = {"oauth", "openid"}
        self.metadata: dict[str, Any] = {}
        self.lifetime = 300
        self.denies = False
        self.asks = False
        self.token_claims: dict[str, Any] = {}
        self.asked: Counter[str] = Counter()
        self.clients: dict[str, Client] = {}
        self._codes: dict[str, Code] = {}
        self._spent: dict[str, str] = {}
        self._refresh: dict[str, Grant] = {}
        self._app = Starlette(
            routes=[
                Route("/.well-known/oauth-authorization-server" + path, self._metadata_of("oauth")),
                Route(path + "/.well-known/openid-configuration", self._metadata_of("openid")),
                Route(path + "/jwks", self._answering(self._jwks)),
                Route(path + "/register", self._answering(self._register), methods=["POST"]),
                Route(path + "/authorize", self._answering(self._authorize)),
                Route(path + "/token", self._answering(self._token), methods=["POST"]),
            ]
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[AuthorizationServer]:
        """Serve on a free port of loopback until the block ends."""
        async with served(self._app) as url:
            self.issuer = url + self.path
            yield self

    def rotate(self, key: SigningKey | None = None, *, keep: bool = True) -> SigningKey:
        """Sign with a new key; `keep`: the old ones stay published."""
        key = key or SigningKey()
        self.keys = [key, *(self.keys if keep else [])]
        return key

    def claims(self, **claims: Any) -> dict[str, Any]:
        """The claims of a good token with changes; those that are None are left out."""
        now = int(time.time())
        good = {
            "iss": self.issuer, "sub": self.user, "aud": "https://memory.example.com", "exp": now + self.lifetime,
            "iat": now, "jti": secrets.token_hex(8), "client_id": "claude", "scope": "read write",
        } | claims  # fmt: skip
        return {name: value for name, value in good.items() if value is not None}

    def issue(self, **claims: Any) -> str:
        """A token without a flow: good but for what `claims` say."""
        return self.keys[0].sign(self.claims(**claims))

    def _answering(self, endpoint: Any) -> Any:
        async def answer(request: Request) -> Response:
            self.asked[request.url.path.removeprefix(self.path)] += 1
            if self.down:
                return Response("down for maintenance", 503)
            try:
                response: Response = await endpoint(request)
            except OAuthError as error:
                response = self._refusal(error)
            response.headers["Cache-Control"] = "no-store"
            return response

        return answer

    def _refusal(self, error: OAuthError) -> Response:
        told = {"error": error.error, "error_description": error.description}
        if error.redirect is not None:
            return RedirectResponse(_with(error.redirect, told | {"iss": self.issuer}), 302)
        headers = {"WWW-Authenticate": "Basic"} if error.status == 401 else None
        return JSONResponse(told, error.status, headers)

    def _metadata_of(self, kind: str) -> Any:
        async def metadata(_: Request) -> Response:
            if kind not in self.documents:
                return Response(status_code=404)
            return JSONResponse(
                {
                    "issuer": self.issuer,
                    "authorization_endpoint": self.issuer + "/authorize",
                    "token_endpoint": self.issuer + "/token",
                    "registration_endpoint": self.issuer + "/register",
                    "jwks_uri": self.issuer + "/jwks",
                    "scopes_supported": list(self.scopes),
                    "response_types_supported": ["code"],
                    "grant_types_supported": ["authorization_code", "refresh_token"],
                    "token_endpoint_auth_methods_supported": ["none", "client_secret_post", "client_secret_basic"],
                    "code_challenge_methods_supported": ["S256"],
                    "authorization_response_iss_parameter_supported": True,
                }
                | self.metadata
            )

        return self._answering(metadata)

    async def _jwks(self, _: Request) -> Response:
        return JSONResponse({"keys": [key.jwk for key in self.keys]})

    async def _register(self, request: Request) -> Response:
        try:
            asked = json.loads(await request.body())
            uris = asked["redirect_uris"]
            method = asked.get("token_endpoint_auth_method") or "client_secret_basic"
            grants = asked.get("grant_types") or ["authorization_code"]
        except (ValueError, TypeError, KeyError):
            raise OAuthError("invalid_client_metadata", "a JSON object with redirect_uris is needed") from None
        if not uris or not all(isinstance(uri, str) and _may_redirect(uri) for uri in uris):
            raise OAuthError("invalid_redirect_uri", "redirect_uris must be https, or http on loopback")
        if method not in ("none", "client_secret_post", "client_secret_basic"):
            raise OAuthError("invalid_client_metadata", f"token_endpoint_auth_method {method} is not known")
        if not set(grants) <= {"authorization_code", "refresh_token"}:
            raise OAuthError("invalid_client_metadata", f"one of grant_types {grants} is not known")
        scopes = frozenset((asked.get("scope") or " ".join(self.scopes)).split())
        if not scopes <= set(self.scopes):
            raise OAuthError("invalid_client_metadata", f"one of the scopes {sorted(scopes)} is not known")
        secret = None if method == "none" else secrets.token_urlsafe(24)
        client = Client(f"client-{secrets.token_hex(6)}", tuple(uris), method, secret, tuple(grants), scopes)
        self.clients[client.id] = client
        answer = asked | {
            "client_id": client.id, "client_id_issued_at": int(time.time()), "token_endpoint_auth_method": method,
            "grant_types": grants, "response_types": ["code"], "scope": " ".join(sorted(scopes)),
        }  # fmt: skip
        return JSONResponse(answer | ({"client_secret": secret, "client_secret_expires_at": 0} if secret else {}), 201)

    async def _authorize(self, request: Request) -> Response:
        asked = _single(request.url.query)
        client = self.clients.get(asked.get("client_id", ""))
        redirect = asked.get("redirect_uri", "")
        # Nobody is redirected to an address that its client did not register.
        if client is None or redirect not in client.redirect_uris:
            raise OAuthError("invalid_request", "unknown client_id or redirect_uri")
        back = _with(redirect, {"state": asked["state"]} if "state" in asked else {})
        if asked.get("response_type") != "code":
            raise OAuthError("unsupported_response_type", "only code", redirect=back)
        if asked.get("code_challenge_method") != "S256" or len(asked.get("code_challenge", "")) != 43:
            raise OAuthError("invalid_request", "a code_challenge of S256 is needed", redirect=back)
        scopes = tuple(asked.get("scope", "").split()) or tuple(sorted(client.scopes))
        if not set(scopes) <= client.scopes:
            raise OAuthError("invalid_scope", "the client is not registered for that", redirect=back)
        resource = asked.get("resource")
        if resource is not None and not _is_resource(resource):
            raise OAuthError("invalid_target", "resource must be an absolute URI without fragment", redirect=back)
        if self.denies:
            raise OAuthError("access_denied", "the user said <no>", redirect=back)
        code = secrets.token_urlsafe(24)
        grant = Grant(client.id, self.user, scopes, resource, family=secrets.token_hex(8))
        self._codes[code] = Code(grant, redirect, asked["code_challenge"], time.time() + CODE_SECONDS)
        address = _with(back, {"code": code, "iss": self.issuer})
        if self.asks:
            return HTMLResponse(f'<link rel="icon" href="data:,"><a href="{escape(address)}">Approve</a>')
        return RedirectResponse(address, 302)

    async def _token(self, request: Request) -> Response:
        if request.headers.get("Content-Type", "").partition(";")[0] != "application/x-www-form-urlencoded":
            raise OAuthError("invalid_request", "Content-Type must be application/x-www-form-urlencoded")
        asked = _single((await request.body()).decode())
        client = self._authenticated(request.headers, asked)
        kind = asked.get("grant_type", "")
        if kind not in client.grants:
            raise OAuthError("unauthorized_client", f"the client is not registered for {kind!r}")
        grant = self._redeemed(client, asked) if kind == "authorization_code" else self._refreshed(client, asked)
        if asked.get("resource", grant.resource) != grant.resource:
            raise OAuthError("invalid_target", "resource is another one than was authorized")
        answer: dict[str, Any] = {
            "access_token": self.keys[0].sign(
                self.claims(
                    **{
                        "sub": grant.user, "client_id": grant.client, "aud": grant.resource or grant.client,
                        "scope": " ".join(grant.scopes),
                    } | self.token_claims
                )
            ),
            "token_type": "Bearer", "expires_in": self.lifetime, "scope": " ".join(grant.scopes),
        }  # fmt: skip
        if "refresh_token" in client.grants:
            answer["refresh_token"] = secrets.token_urlsafe(24)
            self._refresh[answer["refresh_token"]] = grant
        return JSONResponse(answer)

    def _authenticated(self, headers: Mapping[str, str], asked: Mapping[str, str]) -> Client:
        scheme, _, credentials = headers.get("Authorization", "").partition(" ")
        identity, secret, method = asked.get("client_id", ""), asked.get("client_secret"), "client_secret_post"
        if scheme.lower() == "basic":
            name, _, given = base64.b64decode(credentials).decode().partition(":")
            identity, secret, method = unquote(name), unquote(given), "client_secret_basic"
        elif secret is None:
            method = "none"
        client = self.clients.get(identity)
        if client is None or client.method != method or not hmac.compare_digest(client.secret or "", secret or ""):
            raise OAuthError("invalid_client", "unknown client or wrong secret", status=401)
        return client

    def _redeemed(self, client: Client, asked: Mapping[str, str]) -> Grant:
        given = asked.get("code", "")
        if given in self._spent:
            # Somebody else has it too: what came of it ends (RFC 9700, 4.5).
            self._revoke(self._spent[given])
        code = self._codes.pop(given, None)
        if code is None or code.grant.client != client.id or time.time() > code.expires:
            raise OAuthError("invalid_grant", "the code is unknown, used, expired or another client's")
        self._spent[given] = code.grant.family
        if asked.get("redirect_uri") != code.redirect_uri:
            raise OAuthError("invalid_grant", "redirect_uri is another one than was authorized")
        digest = hashlib.sha256(asked.get("code_verifier", "").encode()).digest()
        if not hmac.compare_digest(base64.urlsafe_b64encode(digest).rstrip(b"=").decode(), code.challenge):
            raise OAuthError("invalid_grant", "code_verifier does not fit the challenge")
        return code.grant

    def _refreshed(self, client: Client, asked: Mapping[str, str]) -> Grant:
        given = asked.get("refresh_token", "")
        if given in self._spent:
            self._revoke(self._spent[given])
        grant = self._refresh.get(given)
        if grant is None or grant.client != client.id:
            raise OAuthError("invalid_grant", "the refresh token is unknown, used or another client's")
        scopes = tuple(asked.get("scope", "").split()) or grant.scopes
        if not set(scopes) <= set(grant.scopes):
            raise OAuthError("invalid_scope", "more than was authorized")
        del self._refresh[given]
        self._spent[given] = grant.family
        return replace(grant, scopes=scopes)

    def _revoke(self, family: str) -> None:
        self._refresh = {token: grant for token, grant in self._refresh.items() if grant.family != family}


def _single(query: str) -> dict[str, str]:
    """Parameters that are each given once, as RFC 6749 wants it."""
    pairs = parse_qsl(query, keep_blank_values=True)
    found = dict(pairs)
    if len(found) != len(pairs):
        raise OAuthError("invalid_request", "a parameter is given twice")
    return found


def _with(url: str, parameters: Mapping[str, str]) -> str:
    if not parameters:
        return url
    return f"{url}{'&' if urlsplit(url).query else '?'}{urlencode(parameters)}"


def _may_redirect(uri: str) -> bool:
    parts = urlsplit(uri)
    loopback = parts.scheme == "http" and parts.hostname in ("localhost", "127.0.0.1", "::1")
    return not parts.fragment and (parts.scheme == "https" or loopback)


def _is_resource(uri: str) -> bool:
    parts = urlsplit(uri)
    return bool(parts.scheme and parts.netloc) and "#" not in uri
