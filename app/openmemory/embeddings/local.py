"""The packaged model: all-MiniLM-L6-v2 computed in int8, 384 dimensions, English, no network."""

from __future__ import annotations

import asyncio
import ctypes
import hashlib
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import TypeVar
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt
import onnxruntime  # type: ignore[import-untyped]
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]
from tokenizers import Encoding, Tokenizer

from openmemory.embeddings.chunks import BY_TOKENS, spans
from openmemory.embeddings.port import (
    PACKAGED,
    Codes,
    EmbedderUnavailable,
    QueryEmbedding,
    TextEmbedding,
    Vector,
    Vectors,
)
from openmemory.embeddings.query_thread import QueryThread, failed
from openmemory.embeddings.tokens import (
    Flags,
    Floats,
    coded,
    counting,
    mostly_unknown,
    owned,
    rotation,
    rounded,
    thinned,
)

MAX_TOKENS = 256
"""The token limit that the model was trained with (sentence-transformers' max_seq_length of this model)."""

BATCH_TOKENS = 256
"""The maximum number of padded tokens in a run. Larger runs are not faster per token, take more memory, and delay
others."""

RUN_TOKENS = 4
"""The fixed cost of a run, in tokens: one core with VNNI took 0.34 ms a run and 0.11 ms a token."""

TOGETHER = 128
"""The number of documents tokenized together, so that chunks of similar length share a run."""

UNKNOWN = "[UNK]"
"""The token for what is not in the vocabulary."""

T = TypeVar("T")
Number = TypeVar("Number", bound=np.generic)

Ids = npt.NDArray[np.int64]
"""Token ids, shape (texts, tokens), padded with zeros."""


@dataclass(frozen=True, slots=True)
class TokenizedText:
    """The token `ids` of a text or a chunk, with the tokens that the model adds before and after.

    `own` are those that get vectors of their own. `unread`: most of the text is unknown to the model.
    """

    ids: Sequence[int]
    own: slice
    unread: bool = False


@dataclass(frozen=True, slots=True)
class PackagedFile:
    """A data file of this package. Without a `sha256`, the build's checksum file beside it is used."""

    name: str
    sha256: str | None = None

    def verified(self) -> Path:
        """Checks the file's content and returns its path.

        Raises:
            EmbedderUnavailable: the file is missing, cannot be read or is damaged.
        """
        path = DATA / self.name
        try:
            expected = self.sha256 or path.with_name(f"{self.name}.sha256").read_text(encoding="ascii").strip()
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise EmbedderUnavailable(
                f"{error.filename}: cannot be read: {error.strerror}; reinstall openmemory-server"
            ) from None
        if digest != expected:
            raise EmbedderUnavailable(f"{path}: damaged; reinstall openmemory-server")
        return path


DATA = Path(__file__).parent / "data"
MODEL = PackagedFile("model.onnx")
TOKENIZER = PackagedFile("tokenizer.json", "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037")


def partition(lengths: Sequence[int]) -> list[slice]:
    """Cuts ascending token counts into runs of least total cost: padded tokens plus `RUN_TOKENS` for each run."""
    cost = [0.0]
    start_of = [0]
    for end in range(1, len(lengths) + 1):
        longest = lengths[end - 1]
        fits = max(1, BATCH_TOKENS // max(longest, 1))
        starts = range(max(0, end - fits), end)
        best = min(starts, key=lambda start: cost[start] + (end - start) * longest)
        cost.append(cost[best] + (end - best) * longest + RUN_TOKENS)
        start_of.append(best)
    runs: list[slice] = []
    end = len(lengths)
    while end:
        runs.append(slice(start_of[end], end))
        end = start_of[end]
    return runs[::-1]


@cache
def _tokenizer() -> Tokenizer:
    tokenizer = Tokenizer.from_file(str(TOKENIZER.verified()))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def vocabulary() -> dict[str, int]:
    """The ids of the packaged model's tokens. Whole words are ordered by frequency, the most common first."""
    return dict(_tokenizer().get_vocab())


def count_tokens(text: str) -> int:
    """The number of tokens of a text, for the packaged model. Those of language models are similar."""
    encoded = _tokenizer().encode(text.encode("utf-8", "replace").decode("utf-8"), add_special_tokens=False)
    return len(encoded.ids)


class Model:
    """The loaded tokenizer and network, safe to use from several threads. `tokenwise`: tokens get vectors too."""

    def __init__(self, threads: int, *, tokenwise: bool = True) -> None:
        self._tokenizer = _tokenizer()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        # A spinning worker uses a full core between two runs.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        # The extended fusions make this graph 5 % slower, both for one text and in batches.
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        # Arena and pattern keep memory for every shape. Shapes vary with each run, and the speed is the same without
        # them.
        options.enable_cpu_mem_arena = False
        options.enable_mem_pattern = False
        options.log_severity_level = 3
        # Loaded by path: a session made from bytes keeps them, 23 MB.
        self._session = onnxruntime.InferenceSession(str(MODEL.verified()), options, providers=["CPUExecutionProvider"])
        self.dimension = int(self._session.get_outputs()[0].shape[-1])
        self._tokenwise = tokenwise
        if tokenwise:
            # OpenBLAS splits a matrix product among threads, which spin while they wait for each other. A product that
            # takes a tenth of a millisecond then takes several on busy cores, and may never end next to a fork.
            threadpool_limits(1, user_api="blas")
            self._counting = counting(self._tokenizer.get_vocab(), self._tokenizer.get_added_tokens_decoder())
            self._rotation = rotation(self.dimension)
        _return_free_memory()

    def encode(self, texts: Sequence[str]) -> list[TokenizedText]:
        """Token ids, at most `MAX_TOKENS` a text. The ids identify queries."""
        first = slice(0, MAX_TOKENS - 2)
        return [
            replace(_frame(encoding, first, first), unread=_is_unread(text, encoding))
            for text, encoding in zip(texts, self._encode(texts), strict=True)
        ]

    def cut(self, texts: Sequence[str]) -> list[list[TokenizedText]]:
        """The token ids of each text's chunks."""
        return [
            [_frame(encoding, span, own) for span, own in zip(cut, owned(cut), strict=True)]
            for encoding in self._encode(texts)
            for cut in [_spans(encoding)]
        ]

    def chunks(self, texts: Sequence[str]) -> list[int]:
        """The number of chunks of each text."""
        return [len(_spans(encoding)) for encoding in self._encode(texts)]

    def _encode(self, texts: Sequence[str]) -> Iterator[Encoding]:
        # One by one: encode_batch starts a thread pool, which warns on standard error when the process forks. A lone
        # surrogate, which JSON can contain, is not valid UTF-8 and would be rejected.
        return (self._tokenizer.encode(text.encode("utf-8", "replace").decode("utf-8")) for text in texts)

    def run(self, encodings: Sequence[TokenizedText]) -> list[QueryEmbedding]:
        """Embeds questions: the normalised mean of all token vectors, and the vectors of tokens that count."""
        unit, hidden, ids, own = self._compute(encodings)
        if not self._tokenwise:
            return [QueryEmbedding(vector, None, one.unread) for vector, one in zip(unit, encodings, strict=True)]
        numbers = self._counting.numbers[ids]
        own &= self._counting.words[ids] | numbers
        tokens = rounded(hidden[own] @ self._rotation)
        tokens[numbers[own]] = 0
        parts = zip(unit, _split(tokens, own), encodings, strict=True)
        return [QueryEmbedding(vector, of, one.unread) for vector, of, one in parts]

    def read(self, encodings: Sequence[TokenizedText]) -> list[tuple[Vector, Codes | None]]:
        """Embeds chunks of texts: the normalised mean of all token vectors, and the codes of tokens that count."""
        unit, hidden, ids, own = self._compute(encodings)
        if not self._tokenwise:
            return [(vector, None) for vector in unit]
        own &= self._counting.words[ids]
        codes = coded(hidden[own] @ self._rotation)
        return list(zip(unit, _split(codes, own), strict=True))

    def _compute(self, encodings: Sequence[TokenizedText]) -> tuple[Vectors, Floats, Ids, Flags]:
        """The means, the vectors of all tokens, their ids, and which of them are `own`."""
        longest = max(len(one.ids) for one in encodings)
        ids = np.zeros((len(encodings), longest), dtype=np.int64)
        mask = np.zeros_like(ids)
        own = np.zeros(ids.shape, dtype=np.bool_)
        for row, one in enumerate(encodings):
            ids[row, : len(one.ids)] = one.ids
            mask[row, : len(one.ids)] = 1
            own[row, one.own] = True
        feeds = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        hidden = self._session.run(None, feeds)[0]
        pooled = np.einsum("btd,bt->bd", hidden, mask.astype(np.float32))
        return pooled / np.linalg.norm(pooled, axis=1, keepdims=True), hidden, ids, own


_models: WeakValueDictionary[tuple[int, bool], Model] = WeakValueDictionary()
"""The models in use in this process. Embedders with equal parameters share one."""
_loading = threading.Lock()


class LocalEmbedder:
    """Embeds with the packaged model. `threads` work on one run. `tokenwise`: tokens get vectors too.

    Queries and documents have a thread each, so that a query never waits behind a bulk import. Queries that arrive
    during a run share the next one. The constructor returns at once: the first call loads the model.
    """

    model = PACKAGED
    chunking = BY_TOKENS.name

    def __init__(self, threads: int = 1, *, tokenwise: bool = True) -> None:
        self.tokenwise = tokenwise
        self._threads = threads
        self._model: Model | None = None
        self._for_documents = ThreadPoolExecutor(1, "embed-documents")
        self._questions = QueryThread(self._load, _runs)

    async def warm(self) -> None:
        """Loads the model and runs it once, so that the first query is as fast as the others."""
        await self.query("warm")

    async def dimension(self) -> int:
        """The length of a vector as stated by the network. Loads the model."""
        model = self._model
        if model is None:
            model = await self._off_loop(self._load)
        return model.dimension

    async def query(self, text: str) -> QueryEmbedding:
        """Embeds one query."""
        return await self._questions.ask(text)

    async def documents(self, texts: Sequence[str]) -> list[TextEmbedding]:
        """Embeds stored texts."""
        embeddings: list[TextEmbedding] = []
        for start in range(0, len(texts), TOGETHER):
            embeddings += await self._documents(texts[start : start + TOGETHER])
        if texts:
            await self._off_loop(_return_free_memory)
        return embeddings

    async def chunks(self, texts: Sequence[str]) -> list[int]:
        """The number of chunks of each text."""
        return await self._off_loop(lambda: self._load().chunks(texts))

    async def close(self) -> None:
        """Stops both threads after they finish their pending work. Later calls raise `EmbedderUnavailable`."""
        await self._questions.close()
        await asyncio.to_thread(self._for_documents.shutdown)
        self._model = None

    async def _documents(self, texts: Sequence[str]) -> list[TextEmbedding]:
        cut = await self._off_loop(lambda: self._load().cut(texts))
        every = [chunk for chunks in cut for chunk in chunks]
        vectors = np.empty((len(every), await self.dimension()), dtype=np.float32)
        codes: list[Codes | None] = [None] * len(every)
        for rows in _runs(every):
            # Each run is a separate call to the thread: other callers' documents take turns, and cancelling stops here.
            results = await self._off_loop(
                lambda rows=rows: self._load().read([every[row] for row in rows]),  # type: ignore[misc]
            )
            for row, one in zip(rows, results, strict=True):
                vectors[row], codes[row] = one
        ends = np.cumsum([len(chunks) for chunks in cut])
        parts = zip(np.split(vectors, ends[:-1]), ends, cut, strict=True)
        return [TextEmbedding(part, _whole(codes[end - len(chunks) : end])) for part, end, chunks in parts]

    def _load(self) -> Model:
        model = self._model
        if model is None:
            key = self._threads, self.tokenwise
            with _loading:
                model = _models.get(key)
                if model is None:
                    model = Model(self._threads, tokenwise=self.tokenwise)
                    _models[key] = model
                self._model = model
        return model

    async def _off_loop(self, function: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._for_documents, function)
        except EmbedderUnavailable:
            raise
        except Exception as error:
            raise EmbedderUnavailable(failed(error)) from error


def _split(rows: npt.NDArray[Number], own: Flags) -> list[npt.NDArray[Number]]:
    """The rows of `own` tokens, split by text."""
    return np.split(rows, np.cumsum(own.sum(axis=1))[:-1])


def _whole(parts: Sequence[Codes | None]) -> Codes | None:
    """Combines the tokens of a text's chunks."""
    own = [part for part in parts if part is not None]
    return thinned(np.concatenate(own)) if own else None


def _runs(encodings: Sequence[TokenizedText]) -> list[list[int]]:
    """Groups rows of similar length for embedding, shortest first."""
    lengths = [len(one.ids) for one in encodings]
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    return [order[run] for run in partition([lengths[row] for row in order])]


def _spans(encoding: Encoding) -> list[slice]:
    """The chunks of a text as slices of its tokens, without the two that the model adds."""
    words = encoding.word_ids[1:-1]
    return spans(len(words), BY_TOKENS, lambda at: words[at] != words[at - 1])


def _frame(encoding: Encoding, span: slice, own: slice) -> TokenizedText:
    """The tokens of a chunk, framed by the two that the model adds. `own` limits those that get their own vectors."""
    ids = encoding.ids
    inner = ids[span.start + 1 : min(span.stop + 1, len(ids) - 1)]
    first, last = own.start - span.start, min(own.stop - span.start, len(inner))
    return TokenizedText([ids[0], *inner, ids[-1]], slice(first + 1, last + 1))


def _is_unread(text: str, encoding: Encoding) -> bool:
    pieces = zip(encoding.word_ids, encoding.tokens, encoding.offsets, strict=True)
    return mostly_unknown(text, islice(pieces, MAX_TOKENS), UNKNOWN)


def _return_free_memory() -> None:
    """Returns the allocator's free pages to the system: loading leaves 60 MB of them, documents leave 80 MB."""
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
