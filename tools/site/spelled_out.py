"""An extension of griffe, in Zensical's environment: in signatures, aliases of types become what they stand for, since
users cannot import them."""

import ast
from collections.abc import Mapping

import griffe


class SpelledOut(griffe.Extension):  # type: ignore[misc]  # griffe is not there where types are checked
    """`aliases`: the names -> what they stand for, as annotations."""

    def __init__(self, aliases: Mapping[str, str]) -> None:
        self._replacer = _Replacer({name: ast.parse(text, mode="eval").body for name, text in aliases.items()})

    def on_function_node(self, *, node: object, **_: object) -> None:
        if isinstance(node, ast.FunctionDef):
            given = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs, node.args.vararg, node.args.kwarg)
            for each in filter(None, given):
                each.annotation = each.annotation and self._replacer.visit(each.annotation)
            node.returns = node.returns and self._replacer.visit(node.returns)


class _Replacer(ast.NodeTransformer):
    def __init__(self, known: Mapping[str, ast.expr]) -> None:
        self._known = known

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self._known.get(node.id, node)
