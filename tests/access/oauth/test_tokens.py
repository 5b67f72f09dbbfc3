"""Access tokens: which are taken, what they say, and why the others are refused."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import HMACAlgorithm

from openmemory.access.oauth.issuer import Issuer
from openmemory.access.oauth.jwks import PublicKeys
from openmemory.access.oauth.tokens import MAX_CACHED_TOKENS, MAX_TOKEN_BYTES, Tokens
from openmemory.config.sections import OAuthSettings
from openmemory.config.settings import LimitSettings
from openmemory.egress.clients import Egress
from openmemory.errors import Unauthenticated
from openmemory.identity.principal import Principal, Scope
from tests.access.oauth.authorization_server import AuthorizationServer
from tests.access.oauth.signing import SigningKey, encoded

RESOURCE = "https://memory.example.com"


@pytest.fixture
async def server() -> AsyncIterator[AuthorizationServer]:
    async with AuthorizationServer().running() as server:
        yield server


@asynccontextmanager
async def verifying(
    server: AuthorizationServer,
    limits: LimitSettings | None = None,
    now: Callable[[], float] = time.time,
    **changes: Any,
) -> AsyncIterator[Tokens]:
    """Tokens of this server, with other settings than the default ones."""
    settings = OAuthSettings.model_validate({"issuer": server.issuer, "resource": RESOURCE} | changes)
    tokens = Tokens(settings, limits or LimitSettings(), PublicKeys(Issuer(settings, Egress())), now=now)
    try:
        yield tokens
    finally:
        await tokens.close()


@pytest.fixture
async def tokens(server: AuthorizationServer) -> AsyncIterator[Tokens]:
    async with verifying(server) as tokens:
        yield tokens


async def refused(tokens: Tokens, token: str) -> str:
    """Why it is refused; the token is repeated nowhere."""
    with pytest.raises(Unauthenticated) as failure:
        await tokens.verify(token)
    assert failure.value.code == "invalid_token"
    told = failure.value.message + (failure.value.hint or "")
    assert not any(part in told for part in token.split(".") if len(part) > 20)
    return failure.value.message.removeprefix("The access token is not valid: ")


async def test_a_good_token_says_who_and_what_for(server: AuthorizationServer, tokens: Tokens) -> None:
    expires = int(time.time()) + 100
    assert await tokens.verify(server.issue(exp=expires)) == Principal(
        id=f"token:{server.issuer} alice claude",
        name="token of claude",
        user="alice",
        app="claude",
        scopes=frozenset({Scope.READ, Scope.WRITE}),
        ends=expires + OAuthSettings().leeway,
    )


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["RS256", "PS256", "ES256", "ES384", "EdDSA"])
async def test_every_algorithm_of_the_defaults_is_taken(
    server: AuthorizationServer, tokens: Tokens, algorithm: str
) -> None:
    key = server.rotate(SigningKey(algorithm))
    assert (await tokens.verify(server.issue())).user == "alice"
    other = SigningKey(algorithm, id=key.id).sign(server.claims())
    assert await refused(tokens, other) == "its signature is wrong"
    content = other.rpartition(".")[0]
    for signature in (b"x", b"\x00" * 64, b"\x00" * 96, b"\xff" * 256):
        assert await refused(tokens, f"{content}.{encoded(signature)}") == "its signature is wrong"


async def test_an_algorithm_outside_of_the_settings_is_refused(server: AuthorizationServer) -> None:
    async with verifying(server, algorithms=["RS256"]) as tokens:
        assert await refused(tokens, server.issue()) == "alg: must be one of RS256"
        assert server.asked["/jwks"] == 0


async def test_a_public_key_is_no_secret_to_sign_with(server: AuthorizationServer, tokens: Tokens) -> None:
    """Algorithm confusion: HS256 with what everybody knows."""
    key = server.rotate(SigningKey("RS256"))
    public = key.private.public_key()
    pem = public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    der = public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    for secret in (pem, pem.strip(), der, json.dumps(key.jwk).encode()):
        content = f"{encoded({'alg': 'HS256', 'typ': 'JWT', 'kid': key.id})}.{encoded(server.claims())}"
        signature = HMACAlgorithm(HMACAlgorithm.SHA256).sign(content.encode(), secret)
        assert (await refused(tokens, f"{content}.{encoded(signature)}")).startswith("alg: must be one of")


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["none", "None", "NONE", "", None, 0, ["ES256"], "es256"])
async def test_a_token_without_a_signature_of_ours_is_refused(
    server: AuthorizationServer, tokens: Tokens, algorithm: Any
) -> None:
    head = encoded({"alg": algorithm, "typ": "JWT"})
    for signature in ("", encoded(b"x")):
        reason = await refused(tokens, f"{head}.{encoded(server.claims())}.{signature}")
        assert reason.startswith("alg: must be one of") or reason == "its signature cannot be read"


@pytest.mark.parametrize(("declared", "used"), [("RS256", "PS256"), ("PS256", "RS256")])
async def test_a_key_is_used_with_its_own_algorithm_alone(
    server: AuthorizationServer, tokens: Tokens, declared: str, used: str
) -> None:
    key = server.rotate(SigningKey(declared))
    other = SigningKey(used, id=key.id)
    other.__dict__["private"] = key.private
    assert await refused(tokens, other.sign(server.claims())) == (
        "it is signed with a key that the issuer does not publish"
    )


@pytest.mark.parametrize("typ", ["JWT", "jwt", "at+jwt", "AT+JWT", "application/at+jwt", None])
async def test_the_types_of_access_tokens_are_taken(
    server: AuthorizationServer, tokens: Tokens, typ: str | None
) -> None:
    assert await tokens.verify(server.keys[0].sign(server.claims(), typ=typ))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("header", "reason"),
    [
        ({"typ": "logout+jwt"}, "typ: must be JWT or at+jwt"),
        ({"typ": "dpop+jwt"}, "typ: must be JWT or at+jwt"),
        ({"typ": 1}, "typ: must be JWT or at+jwt"),
        ({"crit": ["exp"]}, "crit: no extension is known here"),
        ({"crit": []}, "crit: no extension is known here"),
        ({"crit": ["b64"], "b64": True}, "crit: no extension is known here"),
        ({"kid": 7}, "kid: must be a string"),
        ({"kid": ["a"]}, "kid: must be a string"),
    ],
)
async def test_a_header_that_is_not_understood_is_refused(
    server: AuthorizationServer, tokens: Tokens, header: dict[str, Any], reason: str
) -> None:
    assert await refused(tokens, server.keys[0].sign(server.claims(), **header)) == reason


async def test_keys_that_a_token_brings_along_are_not_looked_at(server: AuthorizationServer, tokens: Tokens) -> None:
    own = SigningKey()
    header = {"jku": f"{server.issuer}/jku", "x5u": f"{server.issuer}/x5u", "jwk": own.jwk, "x5c": ["MII"]}
    assert await refused(tokens, own.sign(server.claims(), **header)) == (
        "it is signed with a key that the issuer does not publish"
    )
    assert await refused(tokens, own.sign(server.claims(), **header, kid=server.keys[0].id)) == "its signature is wrong"
    assert await tokens.verify(server.keys[0].sign(server.claims(), **header))
    assert set(server.asked) == {"/.well-known/oauth-authorization-server", "/jwks"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"iss": "https://other.example.com"}, "iss: the token is of another issuer"),
        ({"iss": None}, "iss: the token is of another issuer"),
        ({"iss": []}, "iss: the token is of another issuer"),
        ({"aud": "https://other.example.com"}, "aud: the token is for another service"),
        ({"aud": "https://memory.example.com.evil.com"}, "aud: the token is for another service"),
        ({"aud": "https://memory.example.com/mcpx"}, "aud: the token is for another service"),
        ({"aud": "https://memory.example.com/other"}, "aud: the token is for another service"),
        ({"aud": "http://memory.example.com"}, "aud: the token is for another service"),
        ({"aud": []}, "aud: the token is for another service"),
        ({"aud": None}, "aud: must be a string or a list of strings"),
        ({"aud": {"a": 1}}, "aud: must be a string or a list of strings"),
        ({"aud": [RESOURCE, 1]}, "aud: must be a string or a list of strings"),
        ({"exp": None}, "exp: is missing"),
        ({"exp": "9999999999"}, "exp: must be a time in seconds since 1970"),
        ({"exp": True}, "exp: must be a time in seconds since 1970"),
        ({"exp": 10**18}, "exp: must be a time in seconds since 1970"),
        ({"exp": -1}, "exp: must be a time in seconds since 1970"),
        ({"nbf": "now"}, "nbf: must be a time in seconds since 1970"),
        ({"iat": []}, "iat: must be a time in seconds since 1970"),
        ({"sub": None}, "sub: must be a string that is not blank"),
        ({"sub": ""}, "sub: must be a string that is not blank"),
        ({"sub": " \t"}, "sub: must be a string that is not blank"),
        ({"sub": 42}, "sub: must be a string that is not blank"),
        ({"sub": ["alice"]}, "sub: must be a string that is not blank"),
        ({"sub": "a" * 257}, "sub: has 257 characters; the limit is 256 (limits.name)"),
        ({"sub": "a\x00b"}, "sub: must not contain control characters, such as U+0000"),
        ({"sub": "a\ud800b"}, "sub: has half of a surrogate pair at position 1; send valid Unicode"),
        ({"client_id": 7}, "client_id: must be a string that is not blank"),
        ({"client_id": "c" * 257}, "client_id: has 257 characters; the limit is 256 (limits.name)"),
        ({"client_id": None}, "azp: must be a string that is not blank"),
        ({"scope": 7}, "scope: must be a string of scopes separated by spaces"),
        ({"scope": {"read": True}}, "scope: must be a string of scopes separated by spaces"),
        ({"scope": ["read", 7]}, "scope: must be a string of scopes separated by spaces"),
    ],
)
async def test_a_claim_that_is_wrong_is_named(
    server: AuthorizationServer, tokens: Tokens, claims: dict[str, Any], reason: str
) -> None:
    assert await refused(tokens, server.issue(**claims)) == reason


async def test_a_token_of_another_issuer_causes_no_fetch(server: AuthorizationServer, tokens: Tokens) -> None:
    await refused(tokens, server.issue(iss="https://other.example.com"))
    assert not server.asked


async def test_times_are_held_with_the_leeway_and_no_more(server: AuthorizationServer) -> None:
    now = 1_800_000_000.0
    async with verifying(server, now=lambda: now, leeway=30) as tokens:
        good = {"iat": now, "exp": now + 100}
        assert await tokens.verify(server.issue(**good | {"exp": now - 29}))
        assert await refused(tokens, server.issue(**good | {"exp": now - 30})) == "exp: the token has expired"
        assert await tokens.verify(server.issue(**good | {"nbf": now + 30}))
        assert await refused(tokens, server.issue(**good | {"nbf": now + 31})) == "nbf: the token is not valid yet"
        assert await tokens.verify(server.issue(**good | {"iat": now + 30.0}))
        assert await refused(tokens, server.issue(**good | {"iat": now + 31})) == "iat: the token is not valid yet"
        assert await tokens.verify(server.issue(**good | {"iat": None, "nbf": None}))


@pytest.mark.slow
@pytest.mark.parametrize(
    "audience",
    [
        RESOURCE, f"{RESOURCE}/", f"{RESOURCE}/mcp", f"{RESOURCE}/mcp/", f"{RESOURCE}/mcp/claude/sse/alice",
        f"{RESOURCE}/api/v1/memories", ["https://other.example.com", f"{RESOURCE}/mcp"],
    ],
)  # fmt: skip
async def test_a_token_for_this_service_or_an_address_of_it_is_taken(
    server: AuthorizationServer, tokens: Tokens, audience: Any
) -> None:
    assert await tokens.verify(server.issue(aud=audience))


async def test_configured_audiences_are_the_only_ones(server: AuthorizationServer) -> None:
    async with verifying(server, audience=["memory", "api://memory"]) as tokens:
        for audience in ("memory", "api://memory", ["x", "memory"]):
            assert await tokens.verify(server.issue(aud=audience))
        for audience in (RESOURCE, f"{RESOURCE}/mcp", "memory/", "Memory"):
            assert await refused(tokens, server.issue(aud=audience)) == "aud: the token is for another service"


async def test_the_user_may_be_another_claim_than_the_subject(server: AuthorizationServer) -> None:
    async with verifying(server, user_claim="preferred_username") as tokens:
        claims = await tokens.verify(server.issue(sub="0000-1", preferred_username="alice"))
        assert (claims.user, claims.id) == ("alice", f"token:{server.issuer} 0000-1 claude")
        assert (await refused(tokens, server.issue())).startswith("preferred_username: must be a string")
        assert (await refused(tokens, server.issue(preferred_username="a", sub=None))).startswith("sub: must be")


async def test_an_address_that_the_issuer_did_not_verify_is_no_user(server: AuthorizationServer) -> None:
    async with verifying(server, user_claim="email") as tokens:
        assert (await tokens.verify(server.issue(email="a@b.c", email_verified=True))).user == "a@b.c"
        assert (await tokens.verify(server.issue(email="a@b.c", email_verified="true"))).user == "a@b.c"
        assert await refused(tokens, server.issue(email="a@b.c")) == "email: the issuer has not verified it"
        for verified in (False, "false", 0, ""):
            reason = await refused(tokens, server.issue(email="a@b.c", email_verified=verified))
            assert reason == "email: the issuer has not verified it"


async def test_the_limit_of_names_is_that_of_the_settings(server: AuthorizationServer) -> None:
    async with verifying(server, LimitSettings(name=5)) as tokens:
        assert await tokens.verify(server.issue(sub="alice", client_id="app"))
        assert (await refused(tokens, server.issue(sub="alices"))).startswith("sub: has 6 characters; the limit is 5")


async def test_the_client_names_the_app_unless_it_speaks_as_the_user(server: AuthorizationServer) -> None:
    async with verifying(server, owner_clients=["web-page"]) as tokens:
        page = await tokens.verify(server.issue(client_id="web-page"))
        assert (page.app, page.name) == (None, "token of web-page")
        other = await tokens.verify(server.issue(client_id=None, azp="cursor"))
        assert (other.app, other.name) == ("cursor", "token of cursor")
    async with verifying(server, app_claim="cid", owner_clients=["claude"]) as tokens:
        okta = await tokens.verify(server.issue(cid="windsurf", azp="claude"))
        assert okta.app == "windsurf"
        with pytest.raises(Unauthenticated) as failure:
            await tokens.verify(server.issue())
        assert "oauth.app_claim (cid)" in str(failure.value.hint)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("claims", "scopes"),
    [
        ({"scope": "memory:read"}, {"read"}),
        ({"scope": "openid memory:write  memory:read memory:delete"}, {"read", "write"}),
        ({"scope": "read write admin"}, set()),
        ({"scope": ""}, set()),
        ({"scope": None}, set()),
        ({"scope": None, "scp": ["memory:read"]}, {"read"}),
        ({"scope": None, "scp": "memory:read memory:write"}, {"read", "write"}),
        ({"scope": "memory:memory:read"}, set()),
        ({"scope": "memory:read memory:admin"}, {"read"}),
        ({"scope": "memory:read memory:admin", "sub": "root"}, {"read", "admin"}),
    ],
)
async def test_scopes_are_those_of_ours_and_admin_is_for_administrators(
    server: AuthorizationServer, claims: dict[str, Any], scopes: set[str]
) -> None:
    async with verifying(server, scope_prefix="memory:", admins=["root"]) as tokens:
        assert (await tokens.verify(server.issue(**claims))).scopes == scopes


def twice(first: str) -> Callable[[AuthorizationServer], str]:
    """A good token whose claims name a member a second time."""

    def make(server: AuthorizationServer) -> str:
        claims = json.dumps(server.claims())
        return server.keys[0].sign(f"{{{first}, {claims[1:]}".encode())

    return make


GARBAGE: dict[str, Callable[[AuthorizationServer], str]] = {
    "empty": lambda _: "",
    "word": lambda _: "token",
    "dots": lambda _: "..",
    "two_parts": lambda server: server.issue().rpartition(".")[0],
    "four_parts": lambda server: server.issue() + ".x",
    "no_base64": lambda server: "%%." + server.issue().partition(".")[2],
    "padded": lambda server: server.issue() + "=",
    "padded_as_base64": lambda server: server.issue() + "==",
    "cut": lambda server: server.issue()[:-1] + "\n",
    "unicode": lambda server: server.issue().replace(".", ".é", 1),
    "surrogate": lambda _: "\ud800.\ud800.\ud800",
    "nul": lambda _: "\x00.\x00.\x00",
    "claims_no_json": lambda server: server.keys[0].sign(b"{"),
    "claims_no_object": lambda server: server.keys[0].sign(b"[]"),
    "claims_utf16": lambda server: server.keys[0].sign(json.dumps(server.claims()).encode("utf-16")),
    "claims_latin1": lambda server: server.keys[0].sign(b'{"iss": "\xe9"}'),
    "claims_nan": lambda server: server.keys[0].sign(json.dumps(server.claims(exp=float("nan"))).encode()),
    "claims_infinity": lambda server: server.keys[0].sign(json.dumps(server.claims(exp=float("inf"))).encode()),
    "claims_deep": lambda server: server.keys[0].sign(b'{"a": ' + b"[" * 5_000 + b"]" * 5_000 + b"}"),
    "claims_long_number": lambda server: server.keys[0].sign(b'{"exp": ' + b"9" * 5_000 + b"}"),
    "issuer_twice": twice('"iss": "https://other.example.com"'),
    "subject_twice": twice('"sub": "root"'),
    "audience_twice": twice('"aud": "https://other.example.com"'),
    "twice_inside": twice('"act": {"sub": "a", "sub": "b"}'),
    "header_twice": lambda server: (
        base64.urlsafe_b64encode(b'{"alg":"none","alg":"ES256"}').decode().rstrip("=")
        + "."
        + server.issue().partition(".")[2]
    ),
    "json_serialized": lambda server: json.dumps({"payload": server.issue(), "signatures": []}),
}


@pytest.mark.slow
@pytest.mark.parametrize("garbage", GARBAGE)
async def test_garbage_is_refused_without_asking_anybody(
    server: AuthorizationServer, tokens: Tokens, garbage: str
) -> None:
    reason = await refused(tokens, GARBAGE[garbage](server))
    assert reason.endswith("cannot be read") or reason == "it is no JSON Web Token"
    assert not server.asked


async def test_an_encrypted_token_is_told_to_be_one(tokens: Tokens) -> None:
    assert (await refused(tokens, "a.b.c.d.e")).startswith("it is encrypted (JWE)")


async def test_a_token_over_the_limit_is_not_looked_at(server: AuthorizationServer, tokens: Tokens) -> None:
    small = len(server.issue(padding=""))
    fits = server.issue(padding="x" * ((MAX_TOKEN_BYTES - small) * 3 // 4 - 8))
    assert MAX_TOKEN_BYTES - 50 < len(fits) <= MAX_TOKEN_BYTES
    assert await tokens.verify(fits)
    assert await refused(tokens, server.issue(padding="x" * MAX_TOKEN_BYTES)) == "it is longer than 16,384 bytes"


async def test_a_verified_token_is_remembered_for_a_minute_but_never_beyond_its_end(
    server: AuthorizationServer,
) -> None:
    now = [1_800_000_000.0]
    async with verifying(server, now=lambda: now[0], leeway=0) as tokens:
        long, short = (server.issue(iat=now[0], exp=now[0] + seconds) for seconds in (1_000, 30))
        first = await tokens.verify(long)
        assert await tokens.verify(long) is first
        assert await tokens.verify(short)
        now[0] += 30
        assert await tokens.verify(long) is first
        assert await refused(tokens, short) == "exp: the token has expired"
        now[0] += 30
        again = await tokens.verify(long)
        assert again == first
        assert again is not first


async def test_no_more_tokens_are_remembered_than_there_is_room_for(
    server: AuthorizationServer, tokens: Tokens
) -> None:
    first = await tokens.verify(oldest := server.issue())
    for _ in range(MAX_CACHED_TOKENS):
        await tokens.verify(newest := server.issue())
    assert await tokens.verify(newest) is await tokens.verify(newest)
    assert await tokens.verify(oldest) is not first


async def test_a_refused_token_is_not_remembered(server: AuthorizationServer, tokens: Tokens) -> None:
    token = server.issue()
    tampered = token[:-4] + ("AAAA" if token[-4:] != "AAAA" else "BBBB")
    await tokens.verify(token)
    assert await refused(tokens, tampered) == "its signature is wrong"
    assert await refused(tokens, tampered) == "its signature is wrong"


async def test_other_libraries_tokens_are_taken(server: AuthorizationServer, tokens: Tokens) -> None:
    """What is verified here is what PyJWT makes."""
    key = server.keys[0]
    token = jwt.encode(server.claims(), key.private, algorithm=key.algorithm, headers={"kid": key.id})
    assert (await tokens.verify(token)).user == "alice"


@pytest.mark.slow
@pytest.mark.parametrize("oauth", [{}, {"issuer": "https://as.example.com", "resource": RESOURCE}])
def test_only_a_service_with_an_issuer_loads_what_verifies_tokens(oauth: dict[str, str], short_folder: Path) -> None:
    code = (
        "import asyncio, sys\n"
        "from openmemory.config.settings import Settings\n"
        "from openmemory.services import open_services\n"
        "async def main():\n"
        f"    settings = Settings.model_validate({{'data_dir': {str(short_folder / 'oauth')!r}, 'oauth': {oauth!r}}})\n"
        "    async with open_services(settings) as services:\n"
        "        print(type(services.tokens).__name__, 'openmemory.access.oauth.tokens' in sys.modules)\n"
        "asyncio.run(main())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=True)
    assert done.stdout == ("Tokens True\n" if oauth else "NoneType False\n")
