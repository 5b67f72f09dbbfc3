"""Defaults that columns of many tables share."""

from __future__ import annotations

from sqlalchemy import func, text

NEW_ID = text("gen_random_uuid()")
NOW = func.now()
