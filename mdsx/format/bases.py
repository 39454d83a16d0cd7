"""All base types, by name. Add a line here for a new family of types."""

from __future__ import annotations

from mdsx.format.families import binary, floats, integers, json_text, message_pack, text
from mdsx.format.families.record import Base, Number, Object

BASES: dict[str, Base] = {
    base.name: base for family in (integers, floats, binary, text, json_text, message_pack) for base in family.BASES
}
NUMBERS = {name: base for name, base in BASES.items() if isinstance(base, Number)}
OBJECTS = {name: base for name, base in BASES.items() if isinstance(base, Object)}
MEDIA = tuple(base for base in OBJECTS.values() if base.media)
PICTURES = tuple(base for base in MEDIA if (base.media or "").startswith("image/"))
IMAGES = (binary.BYTES.name, *(base.name for base in PICTURES))
"""The bases of columns whose values may be encoded pictures."""
PYTHON = {base.python: base for base in BASES.values() if base.python is not None}
"""Python type -> the base of its values if none is declared."""
EXTENSIONS = {extension: base for base in BASES.values() for extension in base.extensions}
"""File extension in a tar -> the base of such members if none is declared."""
