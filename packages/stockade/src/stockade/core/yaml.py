"""YAML of anybody: what a bot or a stranger wrote holds nobody up."""

from typing import Any

import yaml

_MAX_DEPTH = 100


class _Loader(yaml.SafeLoader):
    def fetch_flow_collection_start(self, TokenClass: Any) -> None:
        if self.flow_level >= _MAX_DEPTH:  # PyYAML's time is the depth squared
            raise ValueError("it is nested too deeply")
        super().fetch_flow_collection_start(TokenClass)


def parse_yaml(text: str, *, aliases: bool = True) -> Any:
    """ValueError, and nothing else, for what is not YAML, nested too deeply, or has `aliases` unasked."""
    try:
        if not aliases and any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, _Loader)):
            raise ValueError("YAML aliases are not read")
        return yaml.load(text, _Loader)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
