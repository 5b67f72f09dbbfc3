"""The keys of the authorization server: found, kept, renewed, and asked for no more often than it can bear."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from openmemory.access.oauth.issuer import Issuer, metadata_urls
from openmemory.access.oauth.jwks import PAUSE, REFRESH_AFTER, USABLE_FOR, PublicKeys, parse
from openmemory.access.oauth.tokens import Tokens
from openmemory.config.sections import OAuthSettings
from openmemory.config.settings import LimitSettings
from openmemory.egress.clients import Egress
from openmemory.errors import SetupError, Unauthenticated, Unavailable
from tests.access.oauth.authorization_server import AuthorizationServer
from tests.access.oauth.signing import SigningKey
from tests.egress.server import redirect, serving

RESOURCE = "https://memory.example.com"


class Clock:
    """Time that passes when a test says so."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def server() -> AsyncIterator[AuthorizationServer]:
    async with AuthorizationServer().running() as server:
        yield server


@asynccontextmanager
async def verifying(server: AuthorizationServer, clock: Clock, **changes: Any) -> AsyncIterator[Tokens]:
    settings = OAuthSettings.model_validate({"issuer": server.issuer, "resource": RESOURCE} | changes)
    tokens = Tokens(settings, LimitSettings(), PublicKeys(Issuer(settings, Egress()), clock=clock))
    try:
        yield tokens
    finally:
        await tokens.close()


@pytest.fixture
async def tokens(server: AuthorizationServer, clock: Clock) -> AsyncIterator[Tokens]:
    async with verifying(server, clock) as tokens:
        yield tokens


async def taken(tokens: Tokens, token: str) -> bool:
    """Whether the token's key is one of the issuer's; any other refusal fails the test."""
    try:
        await tokens.verify(token)
    except Unauthenticated as error:
        if "a key that the issuer does not publish" not in error.message:
            raise
        return False
    return True


@pytest.mark.parametrize(
    ("issuer", "urls"),
    [
        (
            "https://as.example.com",
            [
                "https://as.example.com/.well-known/oauth-authorization-server",
                "https://as.example.com/.well-known/openid-configuration",
            ],
        ),
        (
            "https://as.example.com/realms/one/",
            [
                "https://as.example.com/.well-known/oauth-authorization-server/realms/one",
                "https://as.example.com/.well-known/openid-configuration/realms/one",
                "https://as.example.com/realms/one/.well-known/openid-configuration",
            ],
        ),
    ],
)
def test_metadata_is_looked_for_where_the_standards_put_it(issuer: str, urls: list[str]) -> None:
    assert metadata_urls(issuer) == urls


@pytest.mark.slow
@pytest.mark.parametrize("documents", [{"oauth"}, {"openid"}, {"oauth", "openid"}])
@pytest.mark.parametrize("path", ["", "/realms/one"])
async def test_the_keys_are_found_through_either_metadata(documents: set[str], path: str, clock: Clock) -> None:
    async with AuthorizationServer(path=path).running() as server, verifying(server, clock) as tokens:
        server.documents = documents
        assert await taken(tokens, server.issue())


async def test_a_configured_address_of_the_keys_needs_no_metadata(server: AuthorizationServer, clock: Clock) -> None:
    async with verifying(server, clock, jwks_url=f"{server.issuer}/jwks") as tokens:
        server.documents = set()
        assert await taken(tokens, server.issue())
        assert set(server.asked) == {"/jwks"}


@pytest.mark.parametrize(
    ("metadata", "words"),
    [
        ({"issuer": "https://evil.example.com"}, r"must name the issuer http.* \(oauth\.issuer\)"),
        ({"issuer": None}, "must name the issuer"),
        ({"jwks_uri": None}, r"has no jwks_uri; set oauth\.jwks_url"),
        ({"jwks_uri": "http://10.0.0.1/jwks"}, r"10\.0\.0\.1: is a private address; .*egress\.allow"),
        ({"jwks_uri": "file:///etc/passwd"}, "must begin with http:// or https://"),
        ({"jwks_uri": "http://[::1"}, "not a valid URL"),
    ],
)
async def test_metadata_that_cannot_be_believed_is_not(
    server: AuthorizationServer, tokens: Tokens, metadata: dict[str, Any], words: str
) -> None:
    server.metadata = metadata
    with pytest.raises(Unavailable, match=words) as failure:
        await tokens.verify(server.issue())
    assert (failure.value.code, failure.value.retry_after) == ("authorization_server_unavailable", PAUSE)


async def test_keys_that_a_redirect_finds_behind_our_walls_are_not_fetched(
    server: AuthorizationServer, clock: Clock
) -> None:
    with serving() as front, serving("::1") as private:
        front.answer = redirect(f"http://[::1]:{private.port}/jwks")
        async with verifying(server, clock, jwks_url=f"http://127.0.0.1:{front.port}/jwks") as tokens:
            with pytest.raises(Unavailable, match="is a loopback address"):
                await tokens.verify(server.issue())
        assert private.connections == 0


@pytest.mark.parametrize("body", [b"{}", b'{"keys": {}}', b"[]", b"<html>", b'{"keys": [' + b"1," * 200 + b"1]}"])
async def test_an_answer_that_is_no_key_set_is_a_failure(
    server: AuthorizationServer, clock: Clock, body: bytes
) -> None:
    with serving() as other:
        other.answer = lambda _: (200, {}, body)
        async with verifying(server, clock, jwks_url=f"http://127.0.0.1:{other.port}/jwks") as tokens:
            with pytest.raises(Unavailable, match="cannot be fetched"):
                await tokens.verify(server.issue())


async def test_keys_are_fetched_once_for_all_who_wait(server: AuthorizationServer, tokens: Tokens) -> None:
    assert await asyncio.gather(*(taken(tokens, server.issue()) for _ in range(50))) == [True] * 50
    assert server.asked["/jwks"] == 1


async def test_one_who_gives_up_waiting_does_not_end_the_fetch_for_the_others(
    server: AuthorizationServer, tokens: Tokens
) -> None:
    impatient = asyncio.create_task(taken(tokens, server.issue()))
    patient = asyncio.create_task(taken(tokens, server.issue()))
    await asyncio.sleep(0)
    impatient.cancel()
    assert await patient
    assert impatient.cancelled()
    assert server.asked["/jwks"] == 1


async def test_a_new_key_is_found_at_once(server: AuthorizationServer, tokens: Tokens, clock: Clock) -> None:
    old = server.issue()
    assert await taken(tokens, old)
    clock.now += PAUSE
    server.rotate()
    assert await taken(tokens, server.issue())
    assert await taken(tokens, old)
    assert server.asked["/jwks"] == 2


async def test_a_key_that_was_withdrawn_stops_working_when_the_keys_are_renewed(
    server: AuthorizationServer, tokens: Tokens, clock: Clock
) -> None:
    old = server.issue()
    assert await taken(tokens, old)
    server.rotate(keep=False)
    clock.now += REFRESH_AFTER - 1
    assert await taken(tokens, old)
    clock.now += 1
    assert await taken(tokens, server.issue())
    assert not await taken(tokens, old), "nor is it remembered any longer"


async def test_a_flood_of_unknown_keys_causes_one_fetch_in_ten_seconds(
    server: AuthorizationServer, tokens: Tokens, clock: Clock
) -> None:
    known = await tokens.verify(remembered := server.issue())
    stranger = SigningKey()
    forged = [stranger.sign(server.claims(), kid=f"unknown-{number}") for number in range(100)]
    assert not any(await asyncio.gather(*(taken(tokens, token) for token in forged)))
    assert server.asked["/jwks"] == 1
    clock.now += PAUSE
    assert not any(await asyncio.gather(*(taken(tokens, token) for token in forged)))
    assert not any([await taken(tokens, token) for token in forged])
    assert server.asked["/jwks"] == 2
    assert await tokens.verify(remembered) is known, "nobody else is disturbed"


async def test_without_any_keys_the_service_says_that_it_cannot_know(
    server: AuthorizationServer, tokens: Tokens, clock: Clock
) -> None:
    server.down = True
    for _ in range(3):
        with pytest.raises(Unavailable, match="answered 503"):
            await tokens.verify(server.issue())
    assert sum(server.asked.values()) == 2, "one look: both kinds of metadata"
    server.down = False
    clock.now += PAUSE
    assert await taken(tokens, server.issue())


async def test_old_keys_serve_for_a_day_while_new_ones_cannot_be_fetched(
    server: AuthorizationServer, tokens: Tokens, clock: Clock
) -> None:
    assert await taken(tokens, server.issue())
    server.down = True
    clock.now += REFRESH_AFTER
    assert await taken(tokens, server.issue())
    clock.now += USABLE_FOR - REFRESH_AFTER
    assert await taken(tokens, server.issue())
    clock.now += 1
    with pytest.raises(Unavailable):
        await tokens.verify(server.issue())


async def test_nobody_waits_for_a_server_that_is_known_to_fail(
    server: AuthorizationServer, tokens: Tokens, clock: Clock, eventually: Callable[..., Awaitable[None]]
) -> None:
    assert await taken(tokens, server.issue())
    server.down = True
    clock.now += REFRESH_AFTER
    assert await taken(tokens, server.issue())
    asked = server.asked["/.well-known/oauth-authorization-server"]
    assert await taken(tokens, server.issue())
    assert server.asked["/.well-known/oauth-authorization-server"] == asked, "ten seconds have not passed"
    clock.now += PAUSE
    old, new = server.keys[0], server.rotate(keep=False)
    server.down = False
    before = server.asked["/jwks"]
    assert await taken(tokens, old.sign(server.claims())), "answered with the old keys, at once"

    async def renewed() -> bool:
        return server.asked["/jwks"] == before + 1

    await eventually(renewed)
    assert await taken(tokens, new.sign(server.claims()))
    assert server.asked["/jwks"] == before + 1


async def test_an_outage_is_told_to_the_log_once(
    server: AuthorizationServer, tokens: Tokens, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    server.down = True
    with caplog.at_level(logging.WARNING, logger="openmemory"):
        for _ in range(3):
            with pytest.raises(Unavailable):
                await tokens.verify(server.issue())
            clock.now += PAUSE
    assert len([record for record in caplog.records if "cannot be fetched" in record.message]) == 1


async def test_closing_ends_a_fetch_under_way(clock: Clock) -> None:
    connected = asyncio.Event()

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connected.set()
        await reader.read()
        writer.close()

    async with await asyncio.start_server(hang, "127.0.0.1", 0) as listening:
        url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        settings = OAuthSettings(issuer=url, resource=RESOURCE)
        tokens = Tokens(settings, LimitSettings(), PublicKeys(Issuer(settings, Egress()), clock=clock))
        waiting = asyncio.create_task(tokens.verify(SigningKey().sign({"iss": url})))
        await connected.wait()
        await tokens.close()
        with pytest.raises(asyncio.CancelledError):
            await waiting


async def test_a_token_without_a_key_id_is_tried_with_the_keys_that_fit(
    server: AuthorizationServer, tokens: Tokens
) -> None:
    server.rotate()
    server.rotate(SigningKey("EdDSA"))
    for key in server.keys:
        assert await taken(tokens, key.sign(server.claims(), kid=None))
    with pytest.raises(Unauthenticated, match="its signature is wrong"):
        await tokens.verify(SigningKey().sign(server.claims(), kid=None))


def listed(key: SigningKey, **changes: Any) -> dict[str, Any]:
    return {"keys": [{name: value for name, value in (key.jwk | changes).items() if value is not None}]}


@pytest.mark.parametrize(
    ("key", "changes", "algorithms"),
    [
        (SigningKey("RS256"), {}, {"RS256"}),
        (SigningKey("RS256"), {"alg": None}, {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"}),
        (SigningKey("ES256"), {"alg": None, "use": None}, {"ES256"}),
        (SigningKey("ES384"), {"alg": None, "key_ops": ["verify"]}, {"ES384"}),
        (SigningKey("EdDSA"), {"alg": None, "kid": None}, {"EdDSA"}),
    ],
)
def test_a_key_fits_what_it_says_and_is(key: SigningKey, changes: dict[str, Any], algorithms: set[str]) -> None:
    (found,) = parse(listed(key, **changes))
    assert found.algorithms == algorithms


@pytest.mark.parametrize(
    ("key", "changes", "words"),
    [
        (SigningKey("RS256", bits=1024), {}, "RSA of 1024 bits is too weak; at least 2,048"),
        (SigningKey("RS256"), {"use": "enc"}, "not for signatures"),
        (SigningKey("RS256"), {"key_ops": ["encrypt"]}, "not for signatures"),
        (SigningKey("RS256"), {"key_ops": 7}, "not for signatures"),
        (SigningKey("RS256"), {"alg": "ES256"}, "fit no algorithm"),
        (SigningKey("RS256"), {"alg": "HS256"}, "fit no algorithm"),
        (SigningKey("RS256"), {"alg": "none"}, "fit no algorithm"),
        (SigningKey("RS256"), {"alg": ["RS256"]}, "fit no algorithm"),
        (SigningKey("RS256"), {"alg": "RSA-OAEP"}, "fit no algorithm"),
        (SigningKey("RS256"), {"d": "AQAB"}, "a secret, which was published"),
        (SigningKey("RS256"), {"kty": "oct", "k": "AQAB"}, "a secret, which was published"),
        (SigningKey("RS256"), {"n": "%%%"}, "cannot be read"),
        (SigningKey("RS256"), {"n": 7}, "cannot be read"),
        (SigningKey("RS256"), {"e": None}, "cannot be read"),
        (SigningKey("RS256"), {"kid": 7}, "its kid is no string"),
        (SigningKey("ES256"), {"crv": "P-384", "alg": None}, "cannot be read"),
        (SigningKey("ES256"), {"crv": "secp256k1", "alg": None}, "fit no algorithm"),
        (SigningKey("ES256"), {"crv": "P-384"}, "fit no algorithm"),
        (SigningKey("ES256"), {"x": "AAAA"}, "cannot be read"),
        (SigningKey("ES256"), {"x": "A" * 43}, "cannot be read"),
        (SigningKey("EdDSA"), {"x": "AAAA"}, "cannot be read"),
        (SigningKey("EdDSA"), {"crv": "X25519"}, "fit no algorithm"),
    ],
)
def test_a_key_that_cannot_be_used_is_left_out_and_the_log_says_why(
    key: SigningKey, changes: dict[str, Any], words: str, caplog: pytest.LogCaptureFixture
) -> None:
    good = SigningKey().jwk
    with caplog.at_level(logging.WARNING, logger="openmemory"):
        found = parse({"keys": [*listed(key, **changes)["keys"], good, 7]})
    assert [key.id for key in found] == [good["kid"]]
    told = [record.getMessage() for record in caplog.records if record.getMessage().startswith("key 0 ")]
    assert len(told) == 1
    assert words in told[0]


async def test_a_token_of_a_weak_key_is_refused(server: AuthorizationServer, tokens: Tokens) -> None:
    server.rotate(SigningKey("RS256", bits=1024))
    assert not await taken(tokens, server.issue())


@pytest.mark.parametrize("changes", [{"issuer": "https://0177.0.0.1"}, {"jwks_url": "https://0177.0.0.1/jwks"}])
def test_an_address_that_is_none_stops_the_start(changes: dict[str, str]) -> None:
    settings = OAuthSettings.model_validate({"issuer": "https://as.example.com", "resource": RESOURCE} | changes)
    with pytest.raises(SetupError, match=next(iter(changes)) + ": not a valid URL"):
        Tokens.of(settings, LimitSettings(), Egress())
