"""Writes the vectors of the background by the packaged model, after a change of the texts or of the model.

    python tools/background.py

See `openmemory.embeddings.chance`.
"""

from __future__ import annotations

import asyncio

import numpy as np

from openmemory.embeddings import chance
from openmemory.embeddings.local import LocalEmbedder


async def main() -> None:
    """Embeds the texts and writes the file."""
    embedder = LocalEmbedder()
    try:
        np.save(chance.VECTORS, np.rint(127 * await chance.embedded(embedder)).astype(np.int8), allow_pickle=False)
    finally:
        await embedder.close()


if __name__ == "__main__":
    asyncio.run(main())
