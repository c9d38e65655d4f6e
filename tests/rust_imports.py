"""The imports between the files of a crate, read from its sources.

A file imports another where it names it: in a `use`, or in a path that begins with `crate`, `self` or
`super`. A name that a module only passes on (`pub use`) counts as an import of the file that defines it.
Code under `#[cfg(test)]` and files that hold only tests do not count.
"""

import re
from pathlib import Path

from rust_source import without_tests

_USE = re.compile(r"(?P<public>\bpub(?:\([^)]*\))?\s+)?\buse\s+(?P<tree>[^;]+);")
_PATH = re.compile(r"\b(?:crate|self|super)(?:::\w+)+")
TEST_FILE = re.compile(r"(?:^|_)tests?(?:\.rs)?$")


def _leaves(tree, before=()):
    """The paths of a use tree, each a tuple of names; `a::{self, b as c}` has two."""
    tree = tree.strip()
    if "{" not in tree:
        names = [name.strip() for name in re.split(r"\s+as\s+", tree)[0].split("::") if name.strip()]
        yield (*before, *names) if names[-1:] != ["self"] else (*before, *names[:-1])
        return
    stem, inner = tree.split("{", 1)
    stem = (*before, *(name.strip() for name in stem.split("::") if name.strip()))
    depth, start, inner = 0, 0, inner.rsplit("}", 1)[0]
    for at, char in enumerate(inner + ","):
        depth += (char == "{") - (char == "}")
        if char == "," and depth == 0:
            if inner[start:at].strip():
                yield from _leaves(inner[start:at], stem)
            start = at + 1


class Crate:
    """The modules of a crate's `src`, and what each imports."""

    def __init__(self, source_dir):
        self.files = {}
        for path in sorted(Path(source_dir).rglob("*.rs")):
            module = path.relative_to(source_dir).with_suffix("").parts
            if TEST_FILE.search(module[-1]) or "tests" in module[:-1]:
                continue
            module = module[:-1] if module[-1] in ("mod", "lib", "main") else module
            self.files[module] = path
        self.passed_on = {}
        mentioned = {module: set(self._mentions(module)) for module in self.files}
        self.imports = {
            module: {found for path in paths if (found := self._file_of(path))} - {module, ()}
            for module, paths in mentioned.items()
        }

    def _absolute(self, module, path):
        if path[0] == "crate":
            return path[1:]
        if path[0] == "self":
            return module + path[1:]
        up = 0
        while path[up : up + 1] == ("super",):
            up += 1
        return module[: len(module) - up] + path[up:] if up else module + path

    def _mentions(self, module):
        code = without_tests(self.files[module].read_text())
        for use in _USE.finditer(code):
            for path in _leaves(use["tree"]):
                absolute = self._absolute(module, path)
                if use["public"]:
                    self.passed_on[(*module, path[-1])] = absolute
                elif path[0] in ("crate", "self", "super") or (*module, path[0]) in self.files:
                    yield absolute
        for path in _PATH.findall(_USE.sub("", code)):
            yield self._absolute(module, tuple(path.split("::")))

    def _file_of(self, path):
        """The module that defines the item of `path`, also if other modules pass it on."""
        for _ in range(8):
            at = next((path[:end] for end in range(1, len(path) + 1) if path[:end] in self.passed_on), None)
            if at is None or self.passed_on[at] == at:
                break
            path = self.passed_on[at] + path[len(at) :]
        return next((path[:end] for end in range(len(path), 0, -1) if path[:end] in self.files), None)

    def folders(self):
        """The same between the folders (and lone files) at the top of the crate."""
        rooms = {}
        for module, imported in self.imports.items():
            if module:
                rooms.setdefault(module[:1], set()).update({other[:1] for other in imported} - {module[:1]})
        return rooms


def circles(imports):
    """Groups of two or more that import each other, directly or round a circle (Tarjan 1972)."""
    index, low, stack, found = {}, {}, [], []

    def visit(one):
        index[one] = low[one] = len(index)
        stack.append(one)
        for other in sorted(imports.get(one, ())):
            if other not in index:
                visit(other)
                low[one] = min(low[one], low[other])
            elif other in stack:
                low[one] = min(low[one], index[other])
        if low[one] == index[one]:
            at = stack.index(one)
            if len(stack) - at > 1:
                found.append(sorted("::".join(name) for name in stack[at:]))
            del stack[at:]

    for one in sorted(imports):
        if one not in index:
            visit(one)
    return found
