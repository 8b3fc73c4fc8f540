"""Which lines of a source stand behind a GPU branch, by its syntax.

A branch is GPU when its condition reads `is_gpu`: the arm itself, what follows a
`if not here.is_gpu: return`, and the functions of the same module that such lines name.
"""

import ast

LEAVES = (ast.Return, ast.Raise, ast.Continue, ast.Break)


def gpu_lines(source: str) -> set[int]:
    """First lines of the statements behind a GPU branch.

    >>> sorted(gpu_lines("if here.is_gpu:\\n    a()\\nelse:\\n    b()"))
    [2]
    >>> sorted(gpu_lines("def f():\\n    if not here.is_gpu:\\n        return\\n    a()"))
    [4]
    """
    return _Finder(ast.parse(source)).lines()


class _Finder:
    def __init__(self, tree: ast.Module):
        self.tree, self.found, self.named = tree, set(), set()
        defs = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)]
        self.functions = {f.name: f for f in defs}
        self.aliases = {
            target.id
            for n in ast.walk(tree)
            if isinstance(n, ast.Assign) and isinstance(n.value, ast.Attribute)
            for target in n.targets
            if n.value.attr == "is_gpu" and isinstance(target, ast.Name)
        }

    def lines(self) -> set[int]:
        self.block(self.tree.body, False)
        done = set()
        while todo := (self.named & self.functions.keys()) - done:
            for name in todo:
                self.block(self.functions[name].body, True)
            done |= todo
        return self.found

    def block(self, statements: list, behind: bool) -> None:
        for statement in statements:
            is_text = isinstance(statement, ast.Expr) and isinstance(
                statement.value, ast.Constant
            )
            if behind and not is_text:
                self.found.add(statement.lineno)
                self.named |= _names(statement, own_only=True)
            self.named |= self.chosen(statement)
            if isinstance(statement, ast.If) and (arm := self.side(statement.test)):
                self.block(statement.body, arm == "gpu")
                self.block(statement.orelse, arm == "cpu")
                if arm == "cpu" and isinstance(statement.body[-1], LEAVES):
                    behind = True
                elif arm == "gpu" and isinstance(statement.body[-1], LEAVES):
                    return  # what follows is for a CPU
            else:
                for inner in _blocks(statement):
                    self.block(inner, behind)

    def side(self, test: ast.expr) -> str | None:
        """Whose arm the body of a condition is: "gpu", "cpu" or nobody's."""
        if not _reads_is_gpu(test, self.aliases):
            return None
        parts = test.values if isinstance(test, ast.BoolOp) else [test]
        part = next(p for p in parts if _reads_is_gpu(p, self.aliases))
        negated = isinstance(part, ast.UnaryOp) and isinstance(part.op, ast.Not)
        return "cpu" if negated else "gpu"

    def chosen(self, statement: ast.stmt) -> set[str]:
        """Names in the GPU arm of a conditional expression of this statement itself."""
        names = set()
        for node in _own_nodes(statement):
            if isinstance(node, ast.IfExp) and (arm := self.side(node.test)):
                names |= _names(node.body if arm == "gpu" else node.orelse)
        return names


def _reads_is_gpu(node: ast.AST, aliases: set[str]) -> bool:
    return any(
        (isinstance(n, ast.Attribute) and n.attr == "is_gpu")
        or (isinstance(n, ast.Name) and n.id in aliases)
        for n in ast.walk(node)
    )


def _blocks(statement: ast.stmt) -> list[list[ast.stmt]]:
    """The lists of statements inside a statement."""
    lists = [getattr(statement, name, []) for name in ("body", "orelse", "finalbody")]
    return lists + [h.body for h in getattr(statement, "handlers", [])]


def _own_nodes(statement: ast.stmt):
    """The nodes of a statement without those of the statements inside."""
    todo = [statement]
    while todo:
        node = todo.pop()
        yield node
        todo += [n for n in ast.iter_child_nodes(node) if not isinstance(n, ast.stmt)]


def _names(node: ast.AST, own_only: bool = False) -> set[str]:
    nodes = _own_nodes(node) if own_only else ast.walk(node)
    return {n.id for n in nodes if isinstance(n, ast.Name)}
