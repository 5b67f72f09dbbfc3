"""Products of matrices take no threads: on busy cores they wait for each other, and next to a fork for ever."""

from __future__ import annotations

from threadpoolctl import threadpool_info

from openmemory.embeddings.local import LocalEmbedder


async def test_a_product_takes_the_thread_that_asks() -> None:
    embedder = LocalEmbedder()
    try:
        await embedder.warm()
        pools = [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]
        assert set(pools) == {1}
    finally:
        await embedder.close()
