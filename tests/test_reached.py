"""Everything of aotc is reached from what users call: nothing stands there for tests alone."""

import ast
from collections import defaultdict

import pytest
from helpers.source_tree import ROOT, package_files, parsed

# modules whose public names users call, and functions that a decorator enters into a table
DOORS = ("aotc", "aotc.__main__", "aotc.api", "aotc.cli", "aotc.onnx_backend")
TABLES = ("op", "spells")
# what tests alone call, and why it is aotc's
FOR_TESTS = {
    ("aotc.oracle.interpret", "interpret"): "what a Schedule means",
    ("aotc.oracle.run_plan", "run_plan"): "what a Plan means",
}


@pytest.fixture(scope="module", autouse=True)
def _trees_while_these_tests_run():
    yield
    parsed.cache_clear()


def _names_said(node):
    """Whether a statement is a list of what a module offers, which reaches nothing."""
    return isinstance(node, ast.Assign) and any(
        getattr(t, "id", "") == "__all__" for t in node.targets)


class Uses:
    """What every function and class at the top of some modules uses of the others.  modules: dotted
    name -> tree."""

    def __init__(self, modules):
        self.modules = modules
        self.top = {(m, n.name): n for m, tree in modules.items() for n in tree.body
                    if isinstance(n, (ast.FunctionDef, ast.ClassDef))}
        self.imported = defaultdict(dict)  # module -> name there -> (module, name)
        for m, tree in modules.items():
            for n in ast.walk(tree):
                if isinstance(n, ast.ImportFrom):
                    self.imported[m] |= {a.asname or a.name: (n.module, a.name) for a in n.names}

    def found(self, module, name):
        """The (module, name) at the top that a name of a module stands for; None: it is none."""
        seen = set()
        while (module, name) not in self.top:
            if (module, name) in seen or name not in self.imported[module]:
                return None
            seen.add((module, name))
            module, name = self.imported[module][name]
        return module, name

    def of(self, module, node):
        """All that a node uses."""
        out = set()
        for n in ast.walk(node):
            if isinstance(n, ast.Name):
                out.add(self.found(module, n.id))
            elif isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name):
                where = ".".join(self.imported[module].get(n.value.id, ("", "")))
                out.add(self.found(where, n.attr) if where in self.modules else None)
        return out - {None}

    def first(self):
        """What runs or is offered without anybody's asking."""
        for m, tree in self.modules.items():
            for n in tree.body:
                if not isinstance(n, (ast.FunctionDef, ast.ClassDef)) and not _names_said(n):
                    yield from self.of(m, n)
        for (m, name), n in self.top.items():
            tables = {getattr(d.func, "id", "") for d in n.decorator_list
                      if isinstance(d, ast.Call)}
            if m in DOORS or tables & set(TABLES):
                yield m, name
        yield from filter(None, (self.found("aotc", name) for name in self.imported["aotc"]))

    def unreached(self, more):
        """What neither the first nor ``more`` use, directly or through others."""
        reached, todo = set(), [*self.first(), *more]
        while todo:
            at = todo.pop()
            if at not in reached:
                reached.add(at)
                todo += self.of(at[0], self.top[at])
        return sorted(set(self.top) - reached)


def test_everything_is_reached_without_tests():
    modules = {".".join(p.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"):
               parsed(p.read_text()) for p in package_files()}
    assert Uses(modules).unreached(FOR_TESTS) == []


def test_what_nobody_uses_is_found_by_that_test():
    modules = {"aotc.api": ast.parse("from aotc.a import f\ndef g():\n f()\n"),
               "aotc.a": ast.parse("__all__ = ['f', 'h']\ndef f():\n pass\ndef h():\n k()\n"
                                   "def k():\n f()\n")}
    assert Uses(modules).unreached(()) == [("aotc.a", "h"), ("aotc.a", "k")]
    assert Uses(modules).unreached([("aotc.a", "h")]) == []
