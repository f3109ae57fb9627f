"""YAML of plain data: no aliases, no field twice, no objects."""

from __future__ import annotations

from typing import Any

import yaml

from treemem.errors import RecipeError


class _Loader(yaml.SafeLoader):
    """Refuses aliases, which let a small text grow without bound, and fields that are given twice."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()
            problem = f"the alias *{event.anchor[:40]} is not read; write the value out"
            raise yaml.composer.ComposerError(None, None, problem, event.start_mark)
        return super().compose_node(parent, index)

    def compose_mapping_node(self, anchor: Any) -> Any:
        node = super().compose_mapping_node(anchor)
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if (key.tag, key.value) in seen:
                    problem = f"the field {key.value[:40]!r} is given twice"
                    raise yaml.composer.ComposerError(None, None, problem, key.start_mark)
                seen.add((key.tag, key.value))
        return node


class _Dumper(yaml.SafeDumper):
    """Writes equal values out instead of as aliases, which the loader refuses."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def load_yaml(text: str | bytes) -> Any:
    """Return the plain data of a YAML text.

    Raises:
        RecipeError: it is not YAML, has an alias, or gives a field twice. The message names the line.
    """
    try:
        return yaml.load(text, Loader=_Loader)
    except (yaml.YAMLError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise RecipeError(" ".join(str(error).split())) from error


def dump_yaml(data: Any) -> str:
    """Return plain data as a YAML text that :func:`load_yaml` reads back.

    Raises:
        yaml.YAMLError: something in it is not plain data.
    """
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)
