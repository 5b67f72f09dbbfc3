"""The packaged model: all-MiniLM-L6-v2 computed in int8, 384 dimensions, English, no network."""

from __future__ import annotations

import asyncio
import ctypes
import hashlib
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt
import onnxruntime  # type: ignore[import-untyped]
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]
from tokenizers import Encoding, Tokenizer

from openmemory.embeddings.chunks import BY_TOKENS, spans
from openmemory.embeddings.port import PACKAGED, Codes, Document, EmbedderUnavailable, Question, Vector, Vectors
from openmemory.embeddings.query_thread import Questions, failed
from openmemory.embeddings.tokens import Flags, Floats, coded, counting, owned, rotation, rounded, thinned

MAX_TOKENS = 256
"""Where the model was trained to stop reading (sentence-transformers' max_seq_length of this model)."""

BATCH_TOKENS = 256
"""Padded tokens of one run at most. Larger runs are not faster per token; they take memory and delay others."""

RUN_TOKENS = 4
"""What a run costs beside its tokens, in tokens: one core with VNNI took 0.34 ms a run and 0.11 ms a token."""

TOGETHER = 128
"""Documents tokenized together, so that windows of like length meet in one run."""

T = TypeVar("T")
Number = TypeVar("Number", bound=np.generic)

Ids = npt.NDArray[np.int64]
"""Token ids, shape (texts, tokens), zeros after the last."""


@dataclass(frozen=True, slots=True)
class Framed:
    """The token `ids` of a text or of a window of it, with those that the model puts before and after, and which of
    them are `told` apart."""

    ids: Sequence[int]
    told: slice


@dataclass(frozen=True, slots=True)
class PackagedFile:
    """A data file of this package. Without a `sha256` the one that the build has written beside it counts."""

    name: str
    sha256: str | None = None

    def verified(self) -> Path:
        """The file's path, once its content is checked.

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
    """Cut ascending token counts into runs of least total cost: padded tokens plus `RUN_TOKENS` for each run."""
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


class Model:
    """The loaded tokenizer and network; safe to use from several threads. `tokenwise`: it tells of tokens too."""

    def __init__(self, threads: int, *, tokenwise: bool = True) -> None:
        self._tokenizer: Tokenizer = Tokenizer.from_file(str(TOKENIZER.verified()))
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        # A spinning worker burns a core between two runs.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        # The extended fusions make this graph 5 % slower, for one text as in batches.
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        # Arena and pattern keep memory for every shape met; shapes vary with each run, and speed is the same without.
        options.enable_cpu_mem_arena = False
        options.enable_mem_pattern = False
        options.log_severity_level = 3
        # By path: a session made from bytes keeps them, 23 MB.
        self._session = onnxruntime.InferenceSession(str(MODEL.verified()), options, providers=["CPUExecutionProvider"])
        self.dimension = int(self._session.get_outputs()[0].shape[-1])
        self._tokenwise = tokenwise
        if tokenwise:
            # OpenBLAS divides a product of matrices among threads, which wait for each other by spinning: what takes a
            # tenth of a millisecond takes several where the cores are busy, and next to a fork it may never end.
            threadpool_limits(1, user_api="blas")
            self._counting = counting(self._tokenizer.get_vocab(), self._tokenizer.get_added_tokens_decoder())
            self._rotation = rotation(self.dimension)
        _return_free_memory()

    def encode(self, texts: Sequence[str]) -> list[Framed]:
        """Token ids, at most `MAX_TOKENS` a text: what queries are known by."""
        first = slice(0, MAX_TOKENS - 2)
        return [_framed(encoding, first, first) for encoding in self._encoded(texts)]

    def cut(self, texts: Sequence[str]) -> list[list[Framed]]:
        """Token ids of each text's windows."""
        return [
            [_framed(encoding, span, told) for span, told in zip(cut, owned(cut), strict=True)]
            for encoding in self._encoded(texts)
            for cut in [_spans(encoding)]
        ]

    def windows(self, texts: Sequence[str]) -> list[int]:
        """Into how many windows each text is cut."""
        return [len(_spans(encoding)) for encoding in self._encoded(texts)]

    def _encoded(self, texts: Sequence[str]) -> Iterator[Encoding]:
        # One by one: encode_batch starts a thread pool, which complains on standard error when the process forks.
        # A lone surrogate, which JSON can carry, is no UTF-8 and would be refused.
        return (self._tokenizer.encode(text.encode("utf-8", "replace").decode("utf-8")) for text in texts)

    def run(self, encodings: Sequence[Framed]) -> list[Question]:
        """What questions are: the mean of all vectors of tokens, normalised, and those of tokens that count."""
        unit, hidden, ids, told = self._computed(encodings)
        if not self._tokenwise:
            return [Question(vector, None) for vector in unit]
        numbers = self._counting.numbers[ids]
        told &= self._counting.words[ids] | numbers
        tokens = rounded(hidden[told] @ self._rotation)
        tokens[numbers[told]] = 0
        return [Question(vector, of) for vector, of in zip(unit, _split(tokens, told), strict=True)]

    def read(self, encodings: Sequence[Framed]) -> list[tuple[Vector, Codes | None]]:
        """What windows of texts are: the mean of all vectors of tokens, normalised, and codes of those that count."""
        unit, hidden, ids, told = self._computed(encodings)
        if not self._tokenwise:
            return [(vector, None) for vector in unit]
        told &= self._counting.words[ids]
        codes = coded(hidden[told] @ self._rotation)
        return list(zip(unit, _split(codes, told), strict=True))

    def _computed(self, encodings: Sequence[Framed]) -> tuple[Vectors, Floats, Ids, Flags]:
        """The means, the vectors of all tokens, their ids, and which of them are told."""
        longest = max(len(one.ids) for one in encodings)
        ids = np.zeros((len(encodings), longest), dtype=np.int64)
        mask = np.zeros_like(ids)
        told = np.zeros(ids.shape, dtype=np.bool_)
        for row, one in enumerate(encodings):
            ids[row, : len(one.ids)] = one.ids
            mask[row, : len(one.ids)] = 1
            told[row, one.told] = True
        feeds = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        hidden = self._session.run(None, feeds)[0]
        pooled = np.einsum("btd,bt->bd", hidden, mask.astype(np.float32))
        return pooled / np.linalg.norm(pooled, axis=1, keepdims=True), hidden, ids, told


_models: WeakValueDictionary[tuple[int, bool], Model] = WeakValueDictionary()
"""The models that somebody in this process uses: whoever wants one like it shares it, and loads no other."""
_loading = threading.Lock()


class LocalEmbedder:
    """Embeds with the packaged model; `threads` work on one run. `tokenwise`: tokens get vectors too.

    Queries and documents have a thread each, so that a query never waits behind a bulk import. Queries that arrive
    while others are embedded share the next run. The constructor is instant: the first call loads the model.
    """

    model = PACKAGED
    cutting = BY_TOKENS.name

    def __init__(self, threads: int = 1, *, tokenwise: bool = True) -> None:
        self.tokenwise = tokenwise
        self._threads = threads
        self._model: Model | None = None
        self._for_documents = ThreadPoolExecutor(1, "embed-documents")
        self._questions = Questions(self._loaded, _runs)

    async def warm(self) -> None:
        """Load the model and run it once, so that the first query is as fast as the others."""
        await self.query("warm")

    async def dimension(self) -> int:
        """Length of a vector, as the network states it; loads the model."""
        model = self._model
        if model is None:
            model = await self._off_loop(self._loaded)
        return model.dimension

    async def query(self, text: str) -> Question:
        """Embed one query."""
        return await self._questions.ask(text)

    async def documents(self, texts: Sequence[str]) -> list[Document]:
        """Embed stored texts."""
        found: list[Document] = []
        for start in range(0, len(texts), TOGETHER):
            found += await self._documents(texts[start : start + TOGETHER])
        if texts:
            await self._off_loop(_return_free_memory)
        return found

    async def windows(self, texts: Sequence[str]) -> list[int]:
        """Into how many windows each text is cut."""
        return await self._off_loop(lambda: self._loaded().windows(texts))

    async def close(self) -> None:
        """Stop both threads once they have done what they were given; whoever comes later gets EmbedderUnavailable."""
        await self._questions.close()
        await asyncio.to_thread(self._for_documents.shutdown)
        self._model = None

    async def _documents(self, texts: Sequence[str]) -> list[Document]:
        cut = await self._off_loop(lambda: self._loaded().cut(texts))
        every = [window for windows in cut for window in windows]
        vectors = np.empty((len(every), await self.dimension()), dtype=np.float32)
        codes: list[Codes | None] = [None] * len(every)
        for rows in _runs(every):
            # One hop to the thread for each run: other callers' documents take turns, and cancelling stops here.
            made = await self._off_loop(
                lambda rows=rows: self._loaded().read([every[row] for row in rows]),  # type: ignore[misc]
            )
            for row, one in zip(rows, made, strict=True):
                vectors[row], codes[row] = one
        ends = np.cumsum([len(windows) for windows in cut])
        parts = zip(np.split(vectors, ends[:-1]), ends, cut, strict=True)
        return [Document(part, _whole(codes[end - len(windows) : end])) for part, end, windows in parts]

    def _loaded(self) -> Model:
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


def _split(rows: npt.NDArray[Number], told: Flags) -> list[npt.NDArray[Number]]:
    """Rows of the tokens that are told, by text."""
    return np.split(rows, np.cumsum(told.sum(axis=1))[:-1])


def _whole(parts: Sequence[Codes | None]) -> Codes | None:
    """The tokens of a text from those of its windows."""
    told = [part for part in parts if part is not None]
    return thinned(np.concatenate(told)) if told else None


def _runs(encodings: Sequence[Framed]) -> list[list[int]]:
    """Rows that are embedded together: alike in length, shortest first."""
    lengths = [len(one.ids) for one in encodings]
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    return [order[run] for run in partition([lengths[row] for row in order])]


def _spans(encoding: Encoding) -> list[slice]:
    """The windows of a text among its tokens, not counting the two around them."""
    words = encoding.word_ids[1:-1]
    return spans(len(words), BY_TOKENS, lambda at: words[at] != words[at - 1])


def _framed(encoding: Encoding, span: slice, told: slice) -> Framed:
    """The tokens of a window between the two that the model puts around a text, of which it tells those of `told`."""
    ids = encoding.ids
    inner = ids[span.start + 1 : min(span.stop + 1, len(ids) - 1)]
    first, last = told.start - span.start, min(told.stop - span.start, len(inner))
    return Framed([ids[0], *inner, ids[-1]], slice(first + 1, last + 1))


def _return_free_memory() -> None:
    """Give the allocator's free pages back to the system: loading leaves 60 MB of them behind, documents 80 MB."""
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
