"""From settings to an embedder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from openmemory.config.sections import EmbedderSettings
from openmemory.embeddings.local import LocalEmbedder
from openmemory.embeddings.opening import open_embedder
from openmemory.embeddings.providers import ProviderEmbedder
from openmemory.errors import SetupError


async def test_the_packaged_model_is_the_default(tmp_path: Path) -> None:
    embedder = open_embedder(EmbedderSettings(), tmp_path)
    assert isinstance(embedder.inner, LocalEmbedder)
    assert (await embedder.query("tea")).vector.shape == (384,)
    await embedder.close()


async def test_any_other_provider_is_one_of_mem0s(tmp_path: Path) -> None:
    embedder = open_embedder(EmbedderSettings(provider="ollama", model="bge-m3"), tmp_path)
    assert isinstance(embedder.inner, ProviderEmbedder)
    assert embedder.model == "ollama/bge-m3"
    await embedder.close()


def test_an_unknown_provider_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"embedder.provider: 'opneai' is unknown; valid are local, .*ollama, openai"):
        open_embedder(EmbedderSettings(provider="opneai"), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(("provider", "absent"), [("local", "mem0"), ("openai", "onnxruntime")])
def test_only_what_the_provider_needs_is_imported(provider: str, absent: str, tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path\n"
        "import openmemory.services\n"
        "from openmemory.config.sections import EmbedderSettings\n"
        "from openmemory.embeddings.opening import open_embedder\n"
        f"open_embedder(EmbedderSettings(provider={provider!r}), Path({str(tmp_path)!r}))\n"
        f"print({absent!r} in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "False"
