"""Markers of conversation turns and tool calls that a text may forge."""

from __future__ import annotations

import re

MARKERS = (
    "<|im_start|>", "<|im_end|>", "<|system|>", "<|user|>", "<|assistant|>", "<|endoftext|>", "<|eot_id|>",
    "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|tool_call|>", "<|python_tag|>",
    "<start_of_turn>", "[inst]", "[/inst]", "<<sys>>", "<system>", "</system>", "<system_prompt>", "<system-reminder>",
    "<function_calls>", "<invoke name=", "<function=", "[tool_calls]", "[system override]", "[system message]",
    "\n\nhuman:", "\n\nassistant:",
)  # fmt: skip
"""Start and end markers of turns and calls in the formats that models are trained on, in lower case."""

FORGED = re.compile(
    r"^\W{0,4}### ?(?:system|instruction|assistant|human|user|response)s?(?: prompt| message)? ?:"
    r"|^[ >*_#-]{0,6}system(?: (?:prompt|message|instruction|notice))?[*_]{0,2} ?:[*_]{0,2}\s{0,4}"
    r"(?:you (?:are|must|will|should|shall|may|can)|ignore|disregard|override|new |from now|all (?:previous|prior)"
    r"|the (?:user|assistant|ai) |never |do not|don't|reveal|execute|grant|important|attention|disable|enable )"
    r"|<tool_(?:call|use)>\s{0,9}[{<\[]|\"(?:tool_calls|function_call)\"\s{0,4}:\s{0,4}[\[{]"
    r"|\"method\"\s{0,4}:\s{0,4}\"tools/call\""
    r"|!\[[^\]\n]{0,100}\]\(https?://[^)\s]{0,300}[?&=/][^)\s]{0,100}[{<\[]",
    re.MULTILINE,
)
"""Headings of turns, tool calls, and images whose URL carries data."""

FORGED_NEEDLES = ("###", "system", "<tool_", '"tool_calls"', '"function_call"', "tools/call", "](http")

ANSWERED = re.compile(
    r"^[ \t>*_]{0,6}(?:assistant|ai|chatbot|chatgpt|claude)[*_]{0,2} ?:[*_]{0,2}\s{0,4}"
    r"(?:sure|ok\b|okay|of course|certainly|understood|absolutely|yes[,.! ]|i (?:will|have|shall|am now)|i'll|i've"
    r"|done\b|calling|[<{\[])",
    re.MULTILINE,
)
"""A forged turn of the assistant."""
