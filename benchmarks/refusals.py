"""How many ordinary messages are refused for a secret that they seem to hold, and why.

    python -m benchmarks.refusals FILE…

Each FILE holds a message a line: `{"text": …}`, as the collections of `benchmarks.evaluation` do. What was found is not
printed: a message may hold a real secret.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path

from openmemory.content_policy import secrets


def main() -> None:
    """Print the refused messages of each file by number and kind, and how many there are in all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    messages, kinds = 0, Counter[str]()
    for path in parser.parse_args().files:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                messages += 1
                text = json.loads(line)["text"]
                if found := secrets.find(text):
                    kinds[found[0].kind] += 1
                    before = text[max(0, found[0].start - 40) : found[0].start]
                    print(f"{path}:{number}: {found[0].kind} after {before!r}")
    refused = kinds.total()
    print(f"{refused} of {messages} messages refused; {dict(kinds.most_common())}")


if __name__ == "__main__":
    main()
