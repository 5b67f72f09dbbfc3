from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from openmemory.embeddings.local import MODEL, Model
from tools.int8_graph import int8_graph, published_model

TEXTS = ["I take my tea without sugar", "The garden gate is green", "build " * 60, "¿Dónde está la bicicleta?", "a"]


def vectors(model: Model, texts: list[str]) -> np.ndarray:
    return np.stack([one.vector for one in model.run(model.encode(texts))])


def test_vectors_are_those_of_float_arithmetic_but_for_rounding() -> None:
    model = Model(1)
    ours = vectors(model, TEXTS)
    model._session = onnxruntime.InferenceSession(str(published_model()), providers=["CPUExecutionProvider"])
    theirs = vectors(model, TEXTS)
    assert np.sum(ours * theirs, axis=1).min() > 0.998
    # What ranks results: how near the texts are to each other.
    assert np.abs(ours @ ours.T - theirs @ theirs.T).max() < 0.02


def test_a_vector_hardly_depends_on_what_it_is_embedded_together_with() -> None:
    """Only as far as sums in another order tip the rounding of an activation."""
    model = Model(1)
    together = vectors(model, TEXTS)
    alone = np.concatenate([vectors(model, [text]) for text in TEXTS])
    assert np.sum(together * alone, axis=1).min() > 0.998


def test_the_network_keeps_its_weights_as_int8() -> None:
    assert MODEL.verified().stat().st_size < 1.1 * published_model().stat().st_size


def test_the_packaged_graph_is_the_one_that_is_made_today() -> None:
    assert MODEL.verified().read_bytes() == int8_graph(published_model())


def test_a_model_without_int8_weights_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "empty.onnx"
    path.write_bytes(b"")
    with pytest.raises(ValueError, match="no int8 weights"):
        int8_graph(path)
