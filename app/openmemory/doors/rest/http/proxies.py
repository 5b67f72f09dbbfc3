"""Recognizes the headers by which a proxy, a CDN or a tunnel shows that it forwarded a request."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

_NAMES = frozenset(
    {
        b"forwarded", b"via", b"cdn-loop",  # RFC 7239, 9110 and 8586
        b"x-forwarded",
        b"x-real-ip", b"x-real-port", b"x-client-ip", b"client-ip", b"true-client-ip", b"x-cluster-client-ip",
        b"proxy-client-ip", b"wl-proxy-client-ip", b"x-proxyuser-ip", b"do-connecting-ip",
        b"x-scheme", b"x-url-scheme", b"front-end-https", b"x-nginx-proxy", b"x-varnish", b"surrogate-capability",
        b"remote-user", b"x-webauth-user", b"x-appservice-proto", b"disguised-host",
    }
)  # fmt: skip
_FAMILIES = (
    b"x-forwarded-",  # nearly all: Caddy, Traefik, HAProxy, Envoy, Apache, load balancers, ngrok, localtunnel
    b"x-original-",  # Kubernetes' nginx, Azure, IIS
    b"x-envoy-",  # Envoy, and what is made of it: Istio, Google Cloud, Railway
    b"cf-",  # Cloudflare and cloudflared
    b"x-amz-cf-", b"cloudfront-", b"x-amzn-oidc-", b"x-amzn-apigateway-",  # AWS
    b"fastly-", b"akamai-", b"x-akamai-", b"fly-", b"tailscale-", b"ngrok-auth-", b"x-vercel-", b"x-nf-",
    b"x-azure-", b"x-arr-", b"x-ms-client-principal",  # Azure
    b"x-appengine-", b"x-goog-iap-", b"x-goog-authenticated-user-",  # Google Cloud
    b"x-auth-request-",  # oauth2-proxy
)  # fmt: skip
"""Prefixes of header names. Left out are those that programs on this machine may send themselves: `traceparent`,
`X-Request-ID`, `X-Amzn-Trace-Id`, `X-Cloud-Trace-Context` and other tracing headers, and `ngrok-skip-browser-warning`.
"""


def passed_on(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Returns True if a proxy forwarded the request, so that its sender need not be on this machine."""
    for name, _ in headers:  # noqa: SIM110 - runs on every request: a generator takes half as long again
        if _tells(name):
            return True
    return False


# The same few names come with every request.
@lru_cache(maxsize=1024)
def _tells(name: bytes) -> bool:
    return name in _NAMES or name.startswith(_FAMILIES)
