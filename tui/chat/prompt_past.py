"""Going through the questions of before by arrow keys; what was being typed is there again at the end."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Past:
    """The questions, the oldest first, and where among them the prompt stands."""

    questions: list[str] = field(default_factory=list)
    _at: int = 0  # len(questions): at what is being typed
    _draft: str = ""

    def begin(self, earlier: list[str]) -> None:
        """Put the questions of earlier chats before those of this one."""
        self.questions[:0] = earlier
        self._at += len(earlier)

    def add(self, question: str) -> None:
        """One was asked: the next step back is it."""
        if self.questions[-1:] != [question]:
            self.questions.append(question)
        self._at, self._draft = len(self.questions), ""

    def step(self, by: int, typed: str) -> str | None:
        """The text after a step back (-1) or forward (1); None at the ends. What was changed is kept as the draft."""
        to = self._at + by
        if not 0 <= to <= len(self.questions):
            return None
        if self._at == len(self.questions) or typed != self.questions[self._at]:
            self._draft = typed
        self._at = to
        return self._draft if to == len(self.questions) else self.questions[to]
