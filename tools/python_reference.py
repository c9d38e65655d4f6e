"""Writes docs/python/reference.md from the signatures and docstrings of the package.

    python tools/python_reference.py           writes the page
    python tools/python_reference.py --print   prints it

It reads the sources and imports nothing, so that it needs no build. Public are the names that `ascot/__init__.py`
lists, those in `__all__` of its submodules, members without a leading underscore, and operators with a docstring.
`tests/test_python_package.py` compares the page with its sources.
"""

import ast
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "python" / "ascot"
PAGE = ROOT / "docs" / "python" / "reference.md"
HEAD = """# Reference of the Python package

Made from the docstrings by `tools/python_reference.py`; [Python](../python.md) is the guide. The tests run the
examples, in which the names of a module stand without `ascot.`.
"""
WIDTH = 110
OPERATORS = ("__bytes__", "__getitem__", "__len__")
FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef


def assigned(tree, name):
    """The value that a module assigns to a name, a literal."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(isinstance(to, ast.Name) and to.id == name for to in node.targets):
            return ast.literal_eval(node.value)
    raise LookupError(name)


def module(name):
    """The tree of a module; that of a package with the functions and classes of its modules, in their order."""
    folder = PACKAGE / name
    if not folder.is_dir():
        tree = ast.parse((PACKAGE / f"{name}.py").read_text())
        return with_classes_of_the_extension(tree)
    tree = ast.parse((folder / "__init__.py").read_text())
    for path in sorted(folder.glob("[!_]*.py")):
        tree.body += [node for node in ast.parse(path.read_text()).body if is_public(node)]
    return tree


def with_classes_of_the_extension(tree):
    """A module with the classes that it imports from the extension, of which the stub has the docstrings."""
    imported = {
        one.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.module == "ascot._native"
        for one in node.names
    }
    stub = ast.parse((PACKAGE / "_native.pyi").read_text())
    tree.body += [node for node in stub.body if isinstance(node, ast.ClassDef) and node.name in imported]
    return tree


def decorators(node):
    return {ast.unparse(one).split(".")[-1] for one in node.decorator_list}


def is_public(node):
    is_member = isinstance(node, FUNCTION | ast.ClassDef)
    is_operator = is_member and node.name in OPERATORS
    return is_member and (is_operator or not node.name.startswith("_")) and "overload" not in decorators(node)


def signature(node, name, method=False):
    """The call, as in Python; on several lines if it is long."""
    arguments = ast.parse(ast.unparse(node)).body[0].args
    if method and "staticmethod" not in decorators(node):
        arguments.args = arguments.args[1:]
    result = f" -> {ast.unparse(node.returns)}" if node.returns is not None else ""
    text = ast.unparse(arguments)
    if len(name) + len(text) + len(result) <= WIDTH:
        return f"{name}({text}){result}"
    parts = re.split(r", (?=(?:\*\*?)?\w+(?::|=)|\*(?:,|$))", text)
    return f"{name}(\n" + "".join(f"    {part},\n" for part in parts) + f"){result}"


def constructor(node, name):
    """The signature of a class: that of its constructor, or its fields."""
    for member in node.body:
        if isinstance(member, FUNCTION) and member.name == "__init__":
            member.returns = None
            call = signature(member, name, method=True)
            # The package makes the objects whose constructors take those of the extension.
            return name if "_native" in call else call
    fields = [one for one in node.body if isinstance(one, ast.AnnAssign) and not one.target.id.startswith("_")]
    shown = [f"    {one.target.id}: {ast.unparse(one.annotation)}" for one in fields]
    return "\n".join([f"class {name}:", *shown]) if shown else name


def prose(text):
    """A docstring as Markdown: its examples are fenced."""
    lines, fenced = [], False
    for line in (text or "").splitlines():
        if line.startswith(">>>") and not fenced:
            lines += ["```python"]
            fenced = True
        elif not line and fenced:
            lines += ["```"]
            fenced = False
        lines.append(line)
    return "\n".join([*lines, "```"] if fenced else lines).strip()


def described(node, name):
    """The sections of a function or a class."""
    call = constructor(node, name) if isinstance(node, ast.ClassDef) else signature(node, name)
    yield f"### `{name}`\n\n```python\n{call}\n```\n\n{prose(ast.get_docstring(node))}".strip()
    for member in node.body if isinstance(node, ast.ClassDef) else ():
        text = ast.get_docstring(member) if is_public(member) else None
        if text is not None:
            path = f"{name.rsplit('.', 1)[-1]}.{member.name}"
            is_property = "property" in decorators(member)
            shown = path if is_property else signature(member, path, method=True)
            yield f"#### `{path}`\n\n```python\n{shown}\n```\n\n{prose(text)}"


def sections(title, prefix, tree, names, text=None):
    found = {node.name: node for node in tree.body if is_public(node)}
    parts = [part for name in names if name in found for part in described(found[name], f"{prefix}{name}")]
    if parts:
        yield "\n\n".join([f"## {title}", *([prose(text)] if text else []), *parts])


def page():
    package = module("__init__")
    parts = [HEAD.strip()]
    for name, names in assigned(package, "_MODULES").items():
        if name not in ("_native", "errors"):
            tree = module(name)
            text = re.split(r":\s|\.\n|\.$", ast.get_docstring(tree))[0].replace("\n", " ")
            parts += sections(text, "ascot.", tree, names)
    for name in assigned(package, "_SUBMODULES"):
        tree = module(name)
        names, text = assigned(tree, "__all__"), ast.get_docstring(tree)
        parts += sections(f"`ascot.{name}`", f"ascot.{name}.", tree, names, text)
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    if "--print" in sys.argv[1:]:
        print(page(), end="")
    else:
        PAGE.parent.mkdir(exist_ok=True)
        PAGE.write_text(page())
