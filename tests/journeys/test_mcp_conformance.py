"""The server suite of MCP's conformance kit against the real service.

The kit is installed apart from our own packages, since it needs npm: `npm ci --prefix tests/conformance`.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.required import lacking

pytestmark = [pytest.mark.journey, pytest.mark.slow]

REVISIONS = ("2025-06-18", "2025-11-25", "2026-07-28")

_MODULES = Path(__file__).parents[1] / "conformance" / "node_modules"

_NO_PROMPTS = "the service offers no prompts, and announces none"
_NO_RESOURCES = "the service offers no resources, and announces none"
_DEMO = "asks for a tool of the kit's example server"
_NO_REQUESTS = "asks for a tool of the example server that asks the client back; no tool of the service does"
_NO_HEADERS = "no tool of the service repeats an argument in a header"

NOT_APPLICABLE = {
    "completion-complete": "the service completes no arguments, and announces no completions",
    "logging-set-level": "the service sends no log to clients, and announces none",
    "tools-call-with-logging": "the service sends no log to clients, and announces none",
    "sep-2575-server-no-log-without-loglevel": "the service sends no log to clients, and announces none",
    "prompts-list": _NO_PROMPTS,
    "prompts-get-simple": _NO_PROMPTS,
    "prompts-get-with-args": _NO_PROMPTS,
    "prompts-get-with-image": _NO_PROMPTS,
    "prompts-get-embedded-resource": _NO_PROMPTS,
    "sep-2549-prompts-list-caching-hints": _NO_PROMPTS,
    "sep-2322-non-tool-incomplete": _NO_PROMPTS,
    "resources-list": _NO_RESOURCES,
    "resources-read-text": _NO_RESOURCES,
    "resources-read-binary": _NO_RESOURCES,
    "resources-templates-read": _NO_RESOURCES,
    "resources-subscribe": _NO_RESOURCES,
    "resources-unsubscribe": _NO_RESOURCES,
    "sep-2549-resources-list-caching-hints": _NO_RESOURCES,
    "sep-2549-resources-templates-list-caching-hints": _NO_RESOURCES,
    "tools-call-simple-text": _DEMO,
    "tools-call-error": _DEMO,
    "tools-call-image": _DEMO,
    "tools-call-audio": _DEMO,
    "tools-call-embedded-resource": _DEMO,
    "tools-call-mixed-content": _DEMO,
    "tools-call-with-progress": _DEMO,
    "json-schema-2020-12-tool-found": _DEMO,
    "tools-call-sampling": _NO_REQUESTS,
    "tools-call-elicitation": _NO_REQUESTS,
    "elicitation-sep1034-general": _NO_REQUESTS,
    "elicitation-sep1330-general": _NO_REQUESTS,
    "sep-2322-elicitation-incomplete": _NO_REQUESTS,
    "sep-2322-list-roots-incomplete": _NO_REQUESTS,
    "sep-2322-multi-round-r1": _NO_REQUESTS,
    "sep-2322-multiple-inputs-incomplete": _NO_REQUESTS,
    "sep-2322-reject-tampered-state": _NO_REQUESTS,
    "sep-2322-request-state-incomplete": _NO_REQUESTS,
    "sep-2322-respect-client-capabilities": _NO_REQUESTS,
    "sep-2322-result-type-included": _NO_REQUESTS,
    "sep-2322-sampling-incomplete": _NO_REQUESTS,
    "sep-2575-http-server-no-independent-requests-on-stream": _NO_REQUESTS,
    "sep-2575-missing-capability-http-400": _NO_REQUESTS,
    "sep-2575-server-rejects-undeclared-capability": _NO_REQUESTS,
    "sep-2243-server-no-xmcp-tool": _NO_HEADERS,
    "sep-2243-server-decode-base64": _NO_HEADERS,
    "sep-2243-server-validate-param-match": _NO_HEADERS,
    "sep-2243-server-reject-invalid-param-chars": _NO_HEADERS,
    "sep-2243-server-reject-param-mismatch": _NO_HEADERS,
}
"""Checks that fail because they do not apply to this service, each with the reason."""


@pytest.fixture(scope="module")
def kit() -> list[str | Path]:
    """The command that runs the kit."""
    node = next(_MODULES.glob("node-*/bin/node"), None)
    if node is None:
        lacking("the conformance kit is not installed: npm ci --ignore-scripts --prefix tests/conformance")
    return [node, _MODULES / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"]


def test_every_check_of_the_kit_passes_that_applies_to_a_memory_server(
    kit: list[str | Path], address: str, tmp_path: Path
) -> None:
    failed: dict[str, str | None] = {}
    for revision in REVISIONS:
        suite = ["server", "--url", f"{address}/mcp", "--suite", "all", "--spec-version", revision]
        results = tmp_path / revision
        # It ends with 1 when anything fails, of what does not apply too.
        told = subprocess.run([*kit, *suite, "-o", results], check=False, capture_output=True, text=True, timeout=60)
        checks = [
            check for file in results.glob("*/checks.json") for check in json.loads(file.read_text(encoding="utf-8"))
        ]
        assert any(check["status"] == "SUCCESS" for check in checks), told.stdout + told.stderr
        failed |= {check["id"]: check.get("errorMessage") for check in checks if check["status"] == "FAILURE"}
    assert {name: words for name, words in failed.items() if name not in NOT_APPLICABLE} == {}
    assert NOT_APPLICABLE.keys() - failed.keys() == set(), "these apply by now: take them off the list"
