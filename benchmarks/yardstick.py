"""How fast this machine is just now: rates of different machines and hours are compared by it.

On virtual machines the same work takes up to twice as long when neighbours are busy. The yardstick is work that the
service does not do: embedding one query with the packaged network as it is stored, in floats, on one thread.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator

import numpy as np
import onnxruntime
from tokenizers import Tokenizer

from openmemory.embeddings.local import TOKENIZER
from tools.int8_graph import published_model

REFERENCE = 3.7
"""Milliseconds of CPU that it took on the machine where other systems were measured."""


class Yardstick:
    """The network and its tokenizer, loaded once."""

    def __init__(self) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 3
        self._network = onnxruntime.InferenceSession(
            str(published_model()), options, providers=["CPUExecutionProvider"]
        )
        self._tokenizer = Tokenizer.from_file(str(TOKENIZER.verified()))
        self._tokenizer.no_padding()

    def measure(self, inputs: Iterator[str], count: int = 60) -> float:
        """Median CPU of one query, in milliseconds."""
        milliseconds = []
        for _ in range(count):
            query = next(inputs)
            started = time.thread_time()
            ids = np.array([self._tokenizer.encode(query).ids])
            feeds = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
            self._network.run(None, feeds)
            milliseconds.append((time.thread_time() - started) * 1e3)
        return statistics.median(milliseconds)
