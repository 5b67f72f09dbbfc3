"""Makes passages of a text: redacts secrets, cuts it, labels what reads like instructions, finds what code defines."""

from __future__ import annotations

from openmemory.config.sections import CaptureSettings
from openmemory.content_policy import injection, secrets
from openmemory.resilience.time_budget import OutOfTimeError, TimeBudget
from openmemory.sources.cutting import pieces
from openmemory.sources.symbols import symbols
from openmemory.sources.writing import NewPassage

SECONDS = 5.0
"""The CPU time for the headings and symbols of a text. A million characters of ordinary code take less than one."""

PLAIN = "Stored without headings and symbols, because reading them took too long."


class TextReader:
    """Reads one text, or the parts of one document. Takes CPU time in proportion to the text: run it in a thread.

    Secrets and labels are looked for in every text. Headings and symbols have a budget of time; a text that is over
    it is cut without them, and `note` says so. `redacted`: the kinds of secrets that were replaced. `defines`: the text
    is code, whose symbols are found.
    """

    def __init__(self, capture: CaptureSettings, *, defines: bool = False, seconds: float = SECONDS) -> None:
        self._capture = capture
        self._defines = defines
        self._time = TimeBudget(seconds)
        self.redacted: set[str] = set()
        self.note: str | None = None

    def read(self, text: str, language: str | None, *, above: str | None = None) -> list[NewPassage]:
        """The passages of a text without its secrets. `above`: the heading of the whole text."""
        if self._capture.secrets != "store":
            findings = secrets.find(text)
            text = secrets.without(text, findings)
            self.redacted |= {each.kind for each in findings}
        return self.cut(text, language, above=above)

    def cut(self, text: str, language: str | None, *, above: str | None = None) -> list[NewPassage]:
        """The passages of a text."""
        try:
            return self._passages(text, language, above, self._time)
        except OutOfTimeError:
            self.note = PLAIN
            return self._passages(text, None, above, None)

    def _passages(
        self, text: str, language: str | None, above: str | None, budget: TimeBudget | None
    ) -> list[NewPassage]:
        passages = list[NewPassage]()
        for piece in pieces(text, language, budget):
            if budget is not None:
                budget.check()
            heading = " > ".join(each for each in (above, piece.heading) if each) or None
            defined = symbols(piece.content, heading) if self._defines and budget is not None else []
            passages.append(NewPassage(piece.content, piece.first_line, piece.last_line, heading, [], defined))
        return [passage._replace(labels=self.labels(passage.content)) for passage in passages]

    def labels(self, content: str) -> list[str]:
        """The labels of a passage: `injection` if it reads like orders to an assistant."""
        return [injection.LABEL] if self._capture.injection != "store" and injection.instructs(content) else []
