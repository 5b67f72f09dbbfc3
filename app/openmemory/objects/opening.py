"""Opens the store of originals that the settings name."""

from __future__ import annotations

from pathlib import Path

from openmemory.config.sections import DocumentSettings
from openmemory.objects.s3 import S3Objects
from openmemory.objects.stores import FolderObjects, ObjectStore

OBJECTS_FOLDER = "objects"
"""The folder of the originals of documents, within the data folder."""


def object_store(configured: DocumentSettings, data_folder: Path) -> ObjectStore:
    """The store: a bucket, the configured folder, or the one in the data folder."""
    if configured.bucket is not None:
        return S3Objects(configured)
    return FolderObjects(
        Path(configured.store).expanduser().absolute() if configured.store else data_folder / OBJECTS_FOLDER
    )
