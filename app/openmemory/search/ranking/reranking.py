"""The second stage of a search: a model that reads the question together with each of the best memories.

Off by default. It runs on another server, which may be down, slow or wrong. The order of the first stage then stands,
and the answer states that. Only memories that the caller may read are sent, and they were logged as read before.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol
from uuid import UUID

import httpx

from openmemory.config.addresses import parsed
from openmemory.config.sections import RerankerSettings
from openmemory.egress.clients import Egress
from openmemory.egress.policy import EgressRefused, Origin
from openmemory.errors import SetupError
from openmemory.resilience.circuit_breaker import CircuitBreaker, CircuitOpen
from openmemory.search.ranking.linear_model import Ranked, logit
from openmemory.search.schemas import Arm

log = logging.getLogger(__name__)

NO_RERANKER = "In the order of the first stage (reranker unavailable)"

MAX_TEXT_LENGTH = 4_000
"""The number of characters of a memory that are sent: such models read 512 tokens, few of them more than 2,000."""

_ANSWER = 1_000_000
"""The maximum size of an answer in bytes."""


_FARTHEST = 1e9
"""No model returns a larger score. Larger values are infinite or not numbers."""


FLAGGED_SHARE = 0.25
"""The factor for the reranker's score of a text that is flagged as a prompt injection."""


class RerankerUnavailable(Exception):
    """The reranker does not answer in time, or returns an invalid answer. The message contains no secret."""


class Reranker(Protocol):
    """Scores texts for a question."""

    name: str
    top_n: int
    weight: float

    async def scores(self, query: str, texts: Sequence[str]) -> list[float]:
        """Scores how well each text answers, on the model's own scale; higher is better.

        Raises:
            RerankerUnavailable: there is no valid answer.
        """
        ...

    async def close(self) -> None:
        """Closes its connections."""
        ...


def open_reranker(settings: RerankerSettings, egress: Egress) -> Reranker | None:
    """The configured reranker, or None. Sends nothing yet.

    Raises:
        SetupError: the address must not be reached.
    """
    return None if settings.provider == "none" else HttpReranker(settings, egress)


class HttpReranker:
    """Calls a server's `/rerank`.

    `cohere` is the protocol of Cohere and Jina, also supported by vLLM, the llama.cpp server and LocalAI. `tei` is that
    of Text Embeddings Inference. Both accept either answer: a list, or one under `results`, of an `index` and a
    `relevance_score` or `score`.
    """

    def __init__(self, settings: RerankerSettings, egress: Egress) -> None:
        address = settings.base_url.rstrip("/")
        self._url = address if address.endswith("/rerank") else f"{address}/rerank"
        try:
            origin = Origin.of(self._url)
            if literal := parsed(origin.host):
                egress.policy.check(origin, [literal], trusted=True)
        except EgressRefused as error:
            raise SetupError(f"reranker.base_url: {error}") from None
        self.name = f"{settings.provider}/{settings.model}" if settings.model else settings.provider
        self.top_n = settings.top_n
        self.weight = settings.weight
        self._settings = settings
        self._away = False
        self._host = origin.shown
        self._client = egress.async_client([self._url], timeout=settings.timeout)
        self._breaker = CircuitBreaker("reranker", trips_on=RerankerUnavailable)

    async def scores(self, query: str, texts: Sequence[str]) -> list[float]:
        """One score for each text, within the configured time. After repeated failures, the server is not called for a
        while."""
        try:
            async with self._breaker.guard():
                scores = await self._request_scores(query, [text[:MAX_TEXT_LENGTH] for text in texts])
                self._away = False
                return scores
        except CircuitOpen as refused:
            raise RerankerUnavailable(str(refused)) from None
        except RerankerUnavailable as error:
            if not self._away:
                log.warning("%s; searches keep the order of their first stage", error)
            self._away = True
            raise

    async def close(self) -> None:
        """Closes its connections."""
        await self._breaker.close()
        await self._client.aclose()

    async def _request_scores(self, query: str, texts: list[str]) -> list[float]:
        try:
            async with asyncio.timeout(self._settings.timeout):
                answer = json.loads(await self._post(query, texts))
        except TimeoutError:
            raise self._failure(f"no answer within {self._settings.timeout:g} s") from None
        except httpx.HTTPError as error:
            # Only the kind of failure: the message of a library may quote the key.
            reason = str(error) if isinstance(error, EgressRefused) else type(error).__name__
            raise self._failure(reason) from None
        except (ValueError, RecursionError):
            raise self._failure("the answer is no JSON") from None
        return self._read(answer, len(texts))

    async def _post(self, query: str, texts: list[str]) -> bytes:
        body: dict[str, Any] = {"query": query}
        if self._settings.provider == "tei":
            body |= {"texts": texts, "truncate": True}
        else:
            body |= {"documents": texts, "top_n": len(texts), "return_documents": False}
            body |= {"model": self._settings.model} if self._settings.model else {}
        # Uncompressed, because a megabyte may expand to a gigabyte.
        headers = {"Accept": "application/json", "Accept-Encoding": "identity", "Content-Type": "application/json"}
        if key := self._settings.api_key.get_secret_value():
            headers["Authorization"] = f"Bearer {key}"
        # Lone surrogates, which JSON can contain, are escaped and do no harm.
        content = json.dumps(body).encode()
        async with self._client.stream("POST", self._url, content=content, headers=headers) as response:
            if response.status_code != 200:
                raise self._failure(f"answered {response.status_code}")
            if response.headers.get("Content-Encoding", "identity").lower() != "identity":
                raise self._failure("the answer is compressed although it must not be")
            answer = bytearray()
            async for part in response.aiter_raw():
                answer += part
                if len(answer) > _ANSWER:
                    raise self._failure(f"the answer is larger than {_ANSWER:,} bytes")
            return bytes(answer)

    def _read(self, answer: Any, count: int) -> list[float]:
        results = answer.get("results") if isinstance(answer, dict) else answer
        scores: dict[int, float] = {}
        for one in results if isinstance(results, list) else ():
            result: dict[str, Any] = one if isinstance(one, dict) else {}
            index, score = result.get("index"), result.get("relevance_score", result.get("score"))
            is_valid = type(index) is int and isinstance(score, int | float) and abs(score) <= _FARTHEST
            if not is_valid or index in scores:
                raise self._failure("a result without an index or a score, or one twice")
            scores[int(index)] = float(score)  # type: ignore[arg-type]
        if sorted(scores) != list(range(count)):
            raise self._failure(f"scores for {len(scores)} texts where {count} were sent")
        return [scores[place] for place in range(count)]

    def _failure(self, what: str) -> RerankerUnavailable:
        return RerankerUnavailable(f"reranker {self._host}: {what}")


class Reranked(NamedTuple):
    """The result of the second stage: the hits in their new order, and its score for each that it read. The `note`
    states why there is none."""

    hits: list[Ranked]
    arms: Mapping[UUID, Arm]
    note: str | None = None


async def rerank(reranker: Reranker | None, query: str, hits: list[Ranked], rows: Mapping[UUID, Any]) -> Reranked:
    """The hits in the order of the reranker if there is one and it answers, otherwise in their own. `rows` are those of
    the hits, with their texts."""
    if reranker is None or not hits:
        return Reranked(hits, {})
    try:
        scores = await reranker.scores(query, [rows[hit.id].content for hit in hits[: reranker.top_n]])
    except RerankerUnavailable as error:
        log.debug("not reranked: %s", error)
        return Reranked(hits, {}, NO_RERANKER)
    return reranked(hits, scores, reranker.weight)


def reranked(hits: Sequence[Ranked], scores: Sequence[float], weight: float) -> Reranked:
    """Blends the `scores` of the first hits into the hits of the first stage, which are best first.

        score = (1 - weight) · score + weight · (new - min(new)) / (max(new) - min(new))

    The second part is limited to 0 and 1, and a flagged hit keeps `FLAGGED_SHARE` of it. The ends are those of hits
    that are not flagged; otherwise a planted text could make all others look alike. A hit that was not read gets
    nothing from the second part, and so stays behind those that were.
    """
    new_scores = dict(zip((hit.id for hit in hits), scores, strict=False))
    flagged_ids = {hit.id for hit in hits if hit.flagged}
    ends = [score for id_, score in new_scores.items() if id_ not in flagged_ids] or list(new_scores.values())
    low, high = min(ends), max(ends)
    places = {id_: place for place, id_ in enumerate(sorted(new_scores, key=lambda id_: -new_scores[id_]), 1)}
    arms, blended_hits = {}, []
    for hit in hits:
        total = (1 - weight) * hit.score
        if (score := new_scores.get(hit.id)) is not None:
            value = min(max((score - low) / (high - low), 0.0), 1.0) if high > low else 1.0
            adds = weight * value * (FLAGGED_SHARE if hit.id in flagged_ids else 1.0)
            arms[hit.id] = Arm(places[hit.id], score, weight, adds)
            total += adds
        blended_hits.append(hit._replace(score=total, reranked=logit(total) - logit(hit.score)))
    return Reranked(sorted(blended_hits, key=lambda hit: -hit.score), arms)
