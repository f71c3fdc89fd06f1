"""ctrl+p: the commands of the table, found by their words."""

from __future__ import annotations

from functools import partial

from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.content import Content

from .. import messages
from ..commands import COMMANDS, SlashCommand
from .prompt import Prompt


class SlashCommands(Provider):
    """Every line with a slash. One that cannot do without a word is begun in the prompt, any other is carried out."""

    async def discover(self) -> Hits:
        """All of them, in the order of the table."""
        for one in COMMANDS:
            yield DiscoveryHit(Content(one.usage), partial(self.choose, one), f"/{one.name}", one.about)

    async def search(self, query: str) -> Hits:
        """Those whose name, aliases or words are like what is typed."""
        matcher = self.matcher(query)
        for one in COMMANDS:
            words = f"{one.usage}  {one.about} {' '.join(one.aliases)}"
            score = max(matcher.match(f"/{one.name}") * 1.5, matcher.match(words))
            if score > 0:
                yield Hit(
                    min(score, 1.0),
                    _shown(matcher.highlight(f"/{one.name}"), one),
                    partial(self.choose, one),
                    one.usage,
                    one.about,
                )

    def choose(self, one: SlashCommand) -> None:
        """Carry it out, or begin it."""
        prompts = self.screen.query(Prompt)
        if one.needs and prompts:
            prompts.first().begin_command(one.name)
        else:
            self.screen.post_message(messages.Command(f"/{one.name}"))


def _shown(name: Content, one: SlashCommand) -> Content:
    """The usage, with the letters of the name that were found; its brackets are no markup."""
    return Content.assemble(name, one.usage.removeprefix(f"/{one.name}"))
