"""A scanner for Rust source that finds where functions begin and end.

It blanks out comments, strings and character literals (keeping every newline, so that line
numbers stay right) and then matches braces. It does not parse or expand macros.
"""

import re
from dataclasses import dataclass

_LEXEME = re.compile(
    r"""
      (?P<line>//[^\n]*)
    | (?P<block>/\*)
    | (?P<raw>\b(?:b|c)?r(?P<hashes>\#*)")
    | (?P<string>(?:\bb|\bc)?"(?:[^"\\]|\\.)*")
    | (?P<char>(?:\bb)?'(?:[^'\\\n]|\\(?:x[0-9a-fA-F]{2}|u\{[0-9a-fA-F_]+\}|.))')
    """,
    re.VERBOSE | re.DOTALL,
)
_FUNCTION = re.compile(r"\bfn\s+(?:r#)?(\w+)")
_TEST_MODULE = re.compile(
    r"#\[cfg\((?:all\()?test\b[^\]]*\]\s*"  # the attribute that keeps it to tests
    r"(?:#\[[^\]]*\]\s*)*(?:pub(?:\([^)]*\))?\s+)?mod\s+\w+\s*"
)

_LET_TUPLE = re.compile(r"(?<!if )(?<!while )(?<!&& )\blet \(")
_EQUALS = re.compile(r"(?:\s*:[^=;{}]+)?\s*=\s*\(")


@dataclass(frozen=True)
class Function:
    """A function with a body: its name, the line of its `fn`, and lines up to its closing brace."""

    name: str
    line: int
    length: int


def _blank(text):
    return re.sub(r"[^\n]", " ", text)


def _block_comment_end(source, start):
    depth, at = 0, start
    for mark in re.finditer(r"/\*|\*/", source[start:]):
        depth += 1 if mark.group() == "/*" else -1
        at = start + mark.end()
        if depth == 0:
            return at
    return len(source)


def _comments_and_literals(source):
    """The match of the beginning of each comment and literal, and the places where it begins and ends."""
    at = 0
    while found := _LEXEME.search(source, at):
        start, at = found.span()
        if found["block"]:
            at = _block_comment_end(source, start)
        elif found["raw"]:
            close = source.find('"' + found["hashes"], at)
            at = len(source) if close < 0 else close + 1 + len(found["hashes"])
        yield found, start, at


def code_only(source):
    """The source with comments and literals blanked, line for line."""
    out, at = [], 0
    for _, start, end in _comments_and_literals(source):
        out += [source[at:start], _blank(source[start:end])]
        at = end
    return "".join(out) + source[at:]


def long_lines(source, columns):
    """The numbers of lines longer than `columns`, but for those that begin inside a raw string, which must stay."""
    raw = [(start, end) for found, start, end in _comments_and_literals(source) if found["raw"]]
    at = 0
    for number, line in enumerate(source.split("\n"), start=1):
        if len(line) > columns and not any(start < at < end for start, end in raw):
            yield number
        at += len(line) + 1


def _matching_brace(code, opening):
    depth = 0
    for mark in re.finditer(r"[{}]", code[opening:]):
        depth += 1 if mark.group() == "{" else -1
        if depth == 0:
            return opening + mark.start()
    return len(code) - 1


def _body_start(code, after_name):
    """The body's `{`, or None for a declaration without one. Array lengths may contain `;`."""
    depth = 0
    for at in range(after_name, len(code)):
        char = code[at]
        if char in "([":
            depth += 1
        elif char in ")]":
            depth -= 1
        elif depth == 0 and char == ";":
            return None
        elif depth == 0 and char == "{":
            return at
    return None


def _elements(code, opening):
    """The elements of the tuple or parentheses that open at `opening`, and the place after them."""
    depth, start, elements = 0, opening + 1, []
    for at in range(opening, len(code)):
        if code[at] in "([{":
            depth += 1
        elif code[at] in ")]}":
            depth -= 1
        if depth == 0 or (depth == 1 and code[at] == ","):
            elements.append(code[start:at].strip())
            start = at + 1
        if depth == 0:
            return [element for element in elements if element], at + 1
    return [], len(code)


def packed_lets(code):
    """Statements `let (a, b) = (f(), g())` of code without literals, with any types and any patterns inside.

    A tuple whose patterns can all fail is matched as a whole: `let (Some(a), Some(b)) = (f(), g()) else`. A pattern
    can fail if it names a variant, which begins with a capital.
    """
    for mark in _LET_TUPLE.finditer(code):
        patterns, at = _elements(code, mark.end() - 1)
        equals = _EQUALS.match(code, at)
        if equals and any(not re.search(r"\b[A-Z]", pattern) for pattern in patterns):
            values, end = _elements(code, equals.end() - 1)
            if len(values) > 1 and re.match(r";| else\b", re.sub(r"\s+", " ", code[end : end + 80])):
                yield code[mark.start() : end]


def tuple_parameters(code):
    """Parameters `name: (A, B)` of the functions in code without literals."""
    for mark in _FUNCTION.finditer(code):
        opening = _parameters_start(code, mark.end())
        for parameter in _elements(code, opening)[0] if opening is not None else ():
            kind = re.sub(r"^(&\s*('\w+\s+)?(mut\s+)?)+", "", parameter.partition(":")[2].strip())
            if kind.startswith("("):
                elements, end = _elements(kind, 0)
                if len(elements) > 1 and end == len(kind):
                    yield " ".join(parameter.split())


def _parameters_start(code, at):
    """Where the parameters of a function begin whose name ends at `at`: after its generic types, if any."""
    depth = 0
    for place in range(at, len(code)):
        depth += (code[place] == "<") - (code[place] == ">" and code[place - 1] not in "-=")
        if depth == 0 and code[place] == "(":
            return place
        if depth == 0 and code[place] in ";{":
            return None
    return None


def functions(source):
    """Every function with a body, nested ones too."""
    code = code_only(source)
    found = []
    for mark in _FUNCTION.finditer(code):
        opening = _body_start(code, mark.end())
        if opening is None:
            continue
        first = code.count("\n", 0, mark.start()) + 1
        last = code.count("\n", 0, _matching_brace(code, opening)) + 1
        found.append(Function(mark[1], first, last - first + 1))
    return found


def _test_modules(code):
    """The spans of `#[cfg(test)]` modules in code without literals."""
    at = 0
    while mark := _TEST_MODULE.search(code, at):
        opening = mark.end()
        at = _matching_brace(code, opening) + 1 if code[opening : opening + 1] == "{" else opening
        yield mark.start(), at


def without_tests(source):
    """Code without its `#[cfg(test)]` modules, comments and literals blanked."""
    code = code_only(source)
    for start, end in _test_modules(code):
        code = code[:start] + _blank(code[start:end]) + code[end:]
    return code


def literals_without_tests(source):
    """The string literals outside of `#[cfg(test)]` modules, with their line breaks and quotes."""
    tests, at = list(_test_modules(code_only(source))), 0
    while found := _LEXEME.search(source, at):
        start, at = found.span()
        if found["block"]:
            at = _block_comment_end(source, start)
        elif found["raw"]:
            end = source.find('"' + found["hashes"], at)
            text, at = source[at:end], end + 1 + len(found["hashes"])
        else:
            text = found["string"]
            text = text and re.sub(r"\\\n\s*", "", text.lstrip("bc")[1:-1]).replace("\\n", "\n").replace('\\"', '"')
        if text and not found["block"] and not any(first <= start < last for first, last in tests):
            yield text
