"""The session of the tests, which reads each text once, answers as the network does."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest

from openmemory.embeddings.local import Model
from tests.one_reading import Session

TEXTS = ["I take my tea without sugar", "one", "Deploys happen on Tuesdays, after the review of everybody who is there"]


def test_a_text_that_was_read_before_has_the_same_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnxruntime, "InferenceSession", Session)
    model = Model(1)
    chunks = [cut[0] for cut in model.cut(TEXTS)]
    fresh = model.read(chunks)
    monkeypatch.setattr(Session, "keeps", True)
    for order in ([0], [1, 0, 1], [2, 1, 0], [2]):
        for row, (vector, codes) in zip(order, model.read([chunks[row] for row in order]), strict=True):
            assert np.abs(vector - fresh[row][0]).max() < 1e-6
            assert codes is not None
            assert np.array_equal(codes, fresh[row][1])
