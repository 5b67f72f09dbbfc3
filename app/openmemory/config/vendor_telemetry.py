"""Turns off the telemetry of dependencies before any of them is imported."""

from __future__ import annotations

import os

SWITCHES = {
    "DO_NOT_TRACK": "1",  # every dependency that honours the common switch
    "HF_HUB_DISABLE_TELEMETRY": "1",  # huggingface_hub, which fastembed and sentence-transformers use
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # litellm fetches a price list when it is imported
    "MEM0_TELEMETRY": "False",  # mem0, by way of posthog
    "ORT_DISABLE_TELEMETRY": "1",  # onnxruntime, which also keeps a device id and a log in the user's cache
}
"""Environment variables that dependencies read when they are imported or loaded, and only then."""


def disable_vendor_telemetry() -> None:
    """Set the switches for this process and its children, overriding any previous values."""
    os.environ.update(SWITCHES)
