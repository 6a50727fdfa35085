# SPDX-License-Identifier: Apache-2.0
"""Writes a configuration as YAML: maps as blocks, what stands inside a list as flow."""

import json
import re
from typing import Any

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_./]*\Z")
_RESERVED = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}


def _scalar(value: Any) -> str:
    if value is None:
        return "~"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if _PLAIN.match(value) and value.lower() not in _RESERVED:
        return value
    return json.dumps(value)


def flow(value: Any) -> str:
    """The value on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_scalar(k)}: {flow(v)}" for k, v in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(flow(v) for v in value) + "]"
    return _scalar(value)


def _is_simple(value: Any) -> bool:
    """Whether it stands on one line: no map inside a map or a list."""
    if isinstance(value, dict):
        return all(not isinstance(v, dict) and _is_simple(v) for v in value.values())
    if isinstance(value, (list, tuple)):
        return all(not isinstance(v, dict) and _is_simple(v) for v in value)
    return True


def block(value: Any, indent: int = 0) -> str:
    """The lines of a map or of a list of maps."""
    space = "  " * indent
    lines = []
    if isinstance(value, dict):
        for key, item in value.items():
            nested = isinstance(item, (dict, list, tuple)) and item and not _is_simple(item)
            if nested or (isinstance(item, dict) and item and indent == 0):
                lines.append(f"{space}{_scalar(key)}:\n{block(item, indent + 1)}")
            else:
                lines.append(f"{space}{_scalar(key)}: {flow(item)}")
    else:
        for item in value:
            if _is_simple(item):
                text = flow(item)
                if isinstance(item, dict) and len(item) == 1:
                    text = text[1:-1]
                lines.append(f"{space}- {text}")
            else:
                inner = block(item, indent + 1)
                lines.append(f"{space}- {inner.lstrip()}")
    return "\n".join(lines)


def merge(base: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """A copy of base with the keys of more, maps inside maps as well."""
    result = dict(base)
    for key, value in more.items():
        if isinstance(value, dict) and isinstance(result.get(key), dict):
            result[key] = merge(result[key], value)
        else:
            result[key] = value
    return result
