"""Objects in a bucket of S3, or of a server that speaks its protocol."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING

from openmemory.config.sections import DocumentSettings
from openmemory.errors import Unavailable
from openmemory.objects.stores import CHUNK, no_object

if TYPE_CHECKING:
    from obstore.store import S3Config, S3Store

log = logging.getLogger(__name__)

_MISSING_BUCKET = "NoSuchBucket"


class S3Objects:
    """Objects in a bucket."""

    def __init__(self, settings: DocumentSettings) -> None:
        """`settings.bucket` is not None. Nothing is sent before the first use."""
        from obstore.store import S3Store

        assert settings.bucket is not None
        bucket, prefix = settings.bucket
        config: S3Config = {
            "access_key_id": settings.s3_access_key,
            "secret_access_key": settings.s3_secret_key.get_secret_value(),
            "region": settings.s3_region,
        }
        if settings.s3_endpoint:
            config["endpoint"] = settings.s3_endpoint
        self._store: S3Store = S3Store(
            bucket,
            prefix=prefix or None,
            config=config,
            client_options={
                "allow_http": settings.s3_endpoint.startswith("http://"),
                "connect_timeout": "5s",
                "read_timeout": "20s",
                "timeout": "120s",
            },
            retry_config={"max_retries": 2, "retry_timeout": timedelta(seconds=10)},
        )

    async def put(self, key: str, data: Iterator[bytes]) -> None:
        """See `ObjectStore`."""
        import obstore

        try:
            await obstore.put_async(self._store, key, data)
        except (obstore.exceptions.BaseError, OSError) as error:
            raise _away(error) from error

    async def get(self, key: str) -> AsyncIterator[bytes]:
        """See `ObjectStore`."""
        import obstore

        try:
            response = await obstore.get_async(self._store, key)
            async for chunk in response.stream(min_chunk_size=CHUNK):
                yield bytes(chunk)
        except FileNotFoundError as error:
            raise (_away(error) if _MISSING_BUCKET in str(error) else no_object()) from None
        except (obstore.exceptions.BaseError, OSError) as error:
            raise _away(error) from error

    async def delete(self, key: str) -> None:
        """See `ObjectStore`."""
        import obstore

        try:
            await obstore.delete_async(self._store, key)
        except FileNotFoundError as error:
            if _MISSING_BUCKET in str(error):
                raise _away(error) from error
        except (obstore.exceptions.BaseError, OSError) as error:
            raise _away(error) from error


def _away(error: Exception) -> Unavailable:
    """The error for clients. The log says more."""
    log.warning("the store of documents cannot be used: %s", str(error).partition("\n")[0])
    return Unavailable("The store of documents does not answer.", retry_after=60, code="objects_unavailable")
