"""Turns off what dependencies report to their vendors, before any of them is imported."""

from __future__ import annotations

import os

SWITCHES = {
    "DO_NOT_TRACK": "1",  # whoever heeds the common switch
    "HF_HUB_DISABLE_TELEMETRY": "1",  # huggingface_hub, which fastembed and sentence-transformers use
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # litellm fetches a list of prices when it is imported
    "MEM0_TELEMETRY": "False",  # mem0, by way of posthog
    "ORT_DISABLE_TELEMETRY": "1",  # onnxruntime, which also keeps a device id and a log in the user's cache
}
"""Variables of the environment that dependencies read when they are imported or loaded, and only then."""


def turn_off() -> None:
    """Set the switches for this process and those that it starts, whatever they were before."""
    os.environ.update(SWITCHES)
