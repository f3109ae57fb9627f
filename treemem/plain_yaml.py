"""YAML as plain data."""

from __future__ import annotations

from typing import Any

import yaml

from treemem.errors import RecipeError


class _NoAliases(yaml.SafeLoader):
    """Refuses aliases: a few nested ones unfold to gigabytes."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            line = self.peek_event().start_mark.line + 1
            raise RecipeError(f"line {line} has a YAML alias (*name); write the value out")
        return super().compose_node(parent, index)


def load_yaml(text: str | bytes) -> Any:
    """Return what a YAML document holds.

    Raises:
        RecipeError: it is no YAML, or has aliases.
    """
    try:
        return yaml.load(text, _NoAliases)
    except (yaml.YAMLError, RecursionError) as error:
        raise RecipeError(f"no YAML: {' '.join(str(error).split())[:300]}") from error
