"""Which project a name nearly names."""

from __future__ import annotations

import pytest

from openmemory.projects.spelling import nearest


@pytest.mark.parametrize(
    ("name", "known", "meant"),
    [
        ("tidepol", {"tidepool", "default"}, "tidepool"), ("TIDEPOOL", {"tidepool"}, "tidepool"),
        ("shop", {"acme/shop"}, "acme/shop"), ("acme/shop", {"shop"}, "shop"),
        ("shop", {"acme/shop", "bob/shop"}, None),
        ("api", {"app"}, None), ("web", {"webshop"}, None), ("anything", set(), None),
    ],
)  # fmt: skip
def test_a_name_is_near_if_most_of_it_or_its_last_part_is_equal(name: str, known: set[str], meant: str | None) -> None:
    assert nearest(name, known) == meant
