from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from openmemory.config.settings import Settings, load
from openmemory.doors.server.worker import WorkerInstructions
from openmemory.stores import Stores


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"OPENMEMORY_HTTP_CORS_ORIGINS": "https://page.example", "OPENMEMORY_DATABASE_URL": "postgresql://a:b@c/d"},
        {"OPENMEMORY_HTTP_ALLOWED_HOSTS": "memory.example", "OPENMEMORY_ACCESS_API_KEY": "9xq2-Wp7r_Lk4m8vTz1sBn6y"},
    ],
)
def test_a_worker_has_the_settings_of_its_parent_and_knows_which_were_set(environ: dict[str, Any]) -> None:
    settings = load(environ=environ, inherit=False)
    stores = Stores(folder=Path("/data"), database="postgresql://", shared=True, index_socket=None)
    told = WorkerInstructions.decode(WorkerInstructions(settings, stores, [3], 4).encode()).settings
    assert told == settings
    assert told.http.named_origins == settings.http.named_origins
    assert told.http.named_origins == (("https://page.example",) if "OPENMEMORY_HTTP_CORS_ORIGINS" in environ else ())
    assert told != Settings(port=1)
