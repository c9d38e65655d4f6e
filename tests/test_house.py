"""The rules of the repository: imports between crates, lengths of files and functions, links.

Length is a ratchet. `house_baseline.json` lists files and functions over the limit; an entry may
shrink or disappear, never grow or appear. After shortening something: `python tests/test_house.py --shrink`.
"""

import ast
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

from rust_imports import TEST_FILE, Crate, circles
from rust_source import Function, code_only, functions, long_lines, packed_lets, tuple_parameters, without_tests

ROOT = Path(__file__).resolve().parent.parent
BASELINE = ROOT / "tests" / "house_baseline.json"
FILE_LINES_MAX = 600
FUNCTION_LINES_MAX = 70
RUST_COLUMNS_MAX = 120
# Crates on floor 0 contain arithmetic and kernels: no files, sockets, clocks or processes.
PURE_CRATES = ("ascot-model", "ascot-record")
PURE_FORBIDS = r"\bstd::(?:fs|net|time|process|env|os)\b|\buse std::\{[^}]*\b(?:fs|net|time|process|env|os)\b"


def tracked(*patterns):
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", *patterns],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return [ROOT / line for line in listed.stdout.splitlines() if (ROOT / line).is_file()]


def name_of(path):
    return path.relative_to(ROOT).as_posix()


# ---------------------------------------------------------------- import direction


# The support of tests is outside the floors: a development dependency of any crate, and no other dependency.
TEST_SUPPORT = "ascot-testing"


def rooms():
    """The table of ARCHITECTURE.md: crate -> (floor, crates it may import). A dash means above all floors."""
    table = {}
    for line in (ROOT / "ARCHITECTURE.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if len(cells) >= 4 and (cells[0].isdigit() or cells[0] == "-"):
            crate = cells[1].strip("`")
            floor = int(cells[0]) if cells[0].isdigit() else sys.maxsize
            table[crate] = (floor, set(re.findall(r"`(ascot-\w+)`", cells[-1])))
    return table


def manifests():
    return {path.parent.name: tomllib.loads(path.read_text()) for path in ROOT.glob("crates/*/Cargo.toml")}


def imports_of(manifest, kinds=("dependencies", "dev-dependencies", "build-dependencies")):
    sections = [manifest, *manifest.get("target", {}).values()]
    return {name for part in sections for kind in kinds for name in part.get(kind, {})}


def test_every_crate_has_a_room():
    assert set(manifests()) <= set(rooms()), "a crate is missing in the table of ARCHITECTURE.md"


def test_the_table_itself_points_downward():
    table = rooms()
    for crate, (floor, allowed) in table.items():
        for below in allowed:
            assert table[below][0] < floor, f"{crate} (floor {floor}) may not stand on {below}"


def test_crates_import_downward_only():
    table = rooms()
    for crate, manifest in manifests().items():
        inside = {name for name in imports_of(manifest) if name.startswith("ascot-")}
        extra = inside - table[crate][1] - {TEST_SUPPORT}
        assert not extra, f"crates/{crate}/Cargo.toml imports {sorted(extra)}, its room does not"


def test_the_product_does_not_contain_the_support_of_tests():
    for crate, manifest in manifests().items():
        shipped = imports_of(manifest, ("dependencies", "build-dependencies"))
        assert TEST_SUPPORT not in shipped, f"crates/{crate} ships {TEST_SUPPORT}"
        for path in (ROOT / "crates" / crate / "src").rglob("*.rs"):
            is_test = TEST_FILE.search(path.stem) or "tests" in path.parts
            assert is_test or "ascot_testing" not in without_tests(path.read_text()), name_of(path)


def test_sources_name_only_crates_their_room_may_import():
    table = rooms()
    for crate in manifests():
        allowed = {name.replace("-", "_") for name in table[crate][1] | {crate, TEST_SUPPORT}}
        for path in (ROOT / "crates" / crate).rglob("*.rs"):
            named = set(re.findall(r"\b(ascot_[a-z]+)::", code_only(path.read_text())))
            assert named <= allowed, f"{name_of(path)} names {sorted(named - allowed)}"


def test_floor_0_uses_no_files_and_no_clock():
    for crate in PURE_CRATES:
        for path in (ROOT / "crates" / crate / "src").rglob("*.rs"):
            found = re.search(PURE_FORBIDS, without_tests(path.read_text()))
            assert not found, f"{name_of(path)} uses {found.group()}"


# ---------------------------------------------------------------- imports inside a crate


def test_no_files_of_a_crate_import_each_other_in_a_circle():
    crates = manifests().keys()
    found = {crate: circles(Crate(ROOT / "crates" / crate / "src").imports) for crate in crates}
    assert not any(found.values()), {crate: rings for crate, rings in found.items() if rings}


def test_no_folders_of_a_crate_import_each_other_in_a_circle():
    crates = manifests().keys()
    found = {crate: circles(Crate(ROOT / "crates" / crate / "src").folders()) for crate in crates}
    assert not any(found.values()), {crate: rings for crate, rings in found.items() if rings}


def floors_of(crate):
    """The folders that a crate's lib.rs draws, from the top down."""
    drawn = (ROOT / "crates" / crate / "src" / "lib.rs").read_text().split("```text")[1].split("```")[0]
    return re.findall(r"^//!   (\w+)  ", drawn, re.MULTILINE)


def test_folders_of_the_sorting_crate_import_only_folders_drawn_below_them():
    floors = floors_of("ascot-sort")
    rooms = Crate(ROOT / "crates" / "ascot-sort" / "src").folders()
    assert {name for (name,) in rooms} == set(floors), "lib.rs draws other folders than there are"
    for (room,), imported in rooms.items():
        above = {other for (other,) in imported if floors.index(other) < floors.index(room)}
        assert not above, f"{room} imports {sorted(above)}, drawn above it in lib.rs"


def test_imports_are_found_in_every_spelling(tmp_path):
    (tmp_path / "low").mkdir()
    sources = {
        "lib.rs": "pub use low::deep::Thing;\npub mod low; mod high; mod other;",
        "low/mod.rs": "pub mod deep;\n#[cfg(test)]\nmod tests { use crate::high::Up; }",
        "low/deep.rs": "use super::super::other::{self, x::{Y, Z as W}}; // crate::high",
        "high.rs": "use crate::Thing;\nfn f() { crate::other::g(); }",
        "other.rs": "use std::fs;",
    }
    for name, source in sources.items():
        (tmp_path / name).write_text(source)
    imports = Crate(tmp_path).imports
    assert imports[("high",)] == {("low", "deep"), ("other",)}
    assert imports[("low", "deep")] == {("other",)}
    assert not imports[("low",)] and not circles(imports)
    (tmp_path / "other.rs").write_text("use crate::high::f;")
    assert circles(Crate(tmp_path).imports) == [["high", "low::deep", "other"]]


# ---------------------------------------------------------------- length, as a ratchet


def python_functions(source):
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield Function(node.name, node.lineno, node.end_lineno - node.lineno + 1)


def too_long():
    """Files and functions over the limits: {"files": {path: lines}, "functions": {"path::name": lines}}."""
    files, long_functions = {}, {}
    for path in tracked("*.rs", "*.py", "dev"):
        source = path.read_text()
        lines = source.count("\n")
        if lines > FILE_LINES_MAX:
            files[name_of(path)] = lines
        found = functions(source) if path.suffix == ".rs" else python_functions(source) if path.suffix else ()
        for function in found:
            if function.length > FUNCTION_LINES_MAX:
                key = f"{name_of(path)}::{function.name}"
                long_functions[key] = max(function.length, long_functions.get(key, 0))
    return {"files": files, "functions": long_functions}


def check_ratchet(kind, limit):
    now, allowed = too_long()[kind], json.loads(BASELINE.read_text())[kind]
    grown = {key: lines for key, lines in now.items() if lines > allowed.get(key, limit)}
    assert not grown, f"longer than {limit} lines (or than before): {grown}"
    shrunk = {key: lines for key, lines in allowed.items() if now.get(key, 0) < lines}
    assert not shrunk, f"shorter than recorded: run python tests/test_house.py --shrink for {shrunk}"


def test_files_stay_short():
    check_ratchet("files", FILE_LINES_MAX)


def test_functions_stay_short():
    check_ratchet("functions", FUNCTION_LINES_MAX)


def shrink():
    """Records shorter lengths in the baseline; never a longer one or a new entry."""
    now, before = too_long(), json.loads(BASELINE.read_text())
    for kind, entries in before.items():
        before[kind] = {key: min(lines, now[kind][key]) for key, lines in entries.items() if key in now[kind]}
    BASELINE.write_text(json.dumps(before, indent=2, sort_keys=True) + "\n")


def test_scanner_finds_functions_among_comments_and_strings():
    source = """
// fn in_a_comment() { {
/* fn in_a_block() { /* nested { */ } */
const TEXT: &str = "fn in_a_string() { \\" {";
const RAW: &str = r#"fn raw() { " { "#;
const BRACE: char = '{';
const BYTE: u8 = b'}';
fn declared(x: [u8; 4]) -> u8;
fn one_line() {}
pub(crate) async fn generic<'a, T: Into<[u8; 3]>>(x: &'a T) -> [u8; 2]
where
    T: Copy,
{
    let quote = '\\'';
    let open = "{";
    fn nested() {
    }
    let f: fn(u8) -> u8 = |x| x;
}
fn after() {
}
"""
    found = [(f.name, f.length) for f in functions(source)]
    assert found == [("one_line", 1), ("generic", 10), ("nested", 2), ("after", 2)]


def test_scanner_leaves_out_test_modules():
    source = 'use std::io;\n#[cfg(test)]\nmod tests {\n use std::fs;\n}\nfn tail() { "std::fs"; }\n'
    assert "fs" not in without_tests(source)
    assert "fn tail" in without_tests(source)
    assert without_tests(source).count("\n") == source.count("\n")


def test_examples_in_comments_are_run():
    """Crates without any are left out by `doctest = false`, since looking for them takes as long as compiling."""
    for crate, manifest in manifests().items():
        if manifest.get("lib", {}).get("doctest") is False:
            for path in (ROOT / "crates" / crate / "src").rglob("*.rs"):
                fences = re.findall(r"^\s*//[/!] ?```(\S*)", path.read_text(), re.MULTILINE)
                others = set(fences[::2]) - {"text", "console", "json", "toml"}
                assert not others, f"{name_of(path)} has an example; crates/{crate}/Cargo.toml does not run it"


# ---------------------------------------------------------------- how statements are written


def test_every_value_is_bound_by_a_statement_of_its_own():
    """`let (a, b) = (f(), g());` hides what is bound to which name, and changes to either show both."""
    for path in (ROOT / "crates").rglob("src/**/*.rs"):
        if not TEST_FILE.search(path.name):
            found = list(packed_lets(without_tests(path.read_text())))
            assert not found, f"{name_of(path)} has {found}"


def test_packed_values_are_found_with_types_and_nested_patterns():
    packed = [
        "let (a, b) = (f(), g());",
        "let (mut keys, mut bytes): (Vec<Vec<u8>>, usize) = (Vec::new(), 0);",
        "let ([_, high], [low, _]) = (quantiles(below)?, quantiles(above)?);",
        "let (segment, &lo) =\n    (segment.as_ref()?, starts.get(number)?);",
        "let (Some(first), rest) = (all.first(), all.get(1..)) else { return };",
    ]
    others = [
        "let (Some(a), Some(b)) = (f(), g()) else { return };",
        "if let (Some(a), b) = (f(), g()) {}",
        "if a && let (Some(a), b) = (f(), g()) {}",
        "let (count, of) = (*now)?;",
        "let (order, others): (Vec<u8>, Vec<u8>) = (0..n).chain(0..m).partition(even);",
        "let (a, b) = f(g(), h());",
    ]
    for source in packed:
        assert list(packed_lets(source)) == [source.split(" else")[0].rstrip(";")], source
    for source in others:
        assert not list(packed_lets(source)), source


def test_no_parameter_is_a_tuple():
    """A caller does not see what the first value of a pair is; fields and parameters have names."""
    for path in (ROOT / "crates").rglob("src/**/*.rs"):
        if not TEST_FILE.search(path.name):
            found = list(tuple_parameters(without_tests(path.read_text())))
            assert not found, f"{name_of(path)} has {found}"


def test_tuples_are_found_behind_references_and_generic_types():
    found = """
        fn one<F: Fn(u8, u8) -> bool>(&self, f: F, at: (u32, &'a str)) {}
        fn two(a: &mut (u8, (u8, u8)), b: Vec<(u8, u8)>, c: impl Fn((u8, u8)) -> u8) -> (u8, u8);
        fn none<const N: usize>(a: [(u8, u8); N], (b, c): Pair, d: (), e: &(dyn Fn(u8, u8) + Sync)) {}
    """
    assert list(tuple_parameters(found)) == ["at: (u32, &'a str)", "a: &mut (u8, (u8, u8))"]


def test_lines_of_rust_fit_the_screen():
    """rustfmt leaves comments and literals as they are, and the code around a literal that it cannot break."""
    for path in tracked("*.rs"):
        found = list(long_lines(path.read_text(), RUST_COLUMNS_MAX))
        assert not found, f"{name_of(path)} has lines longer than {RUST_COLUMNS_MAX} columns: {found}"


def test_long_lines_are_found_except_inside_raw_strings():
    comment = "// a picture ──▶ here"
    text = 'let text = "some text";'
    raw = 'let raw = r#"\na line that cannot be broken\nand another one that cannot\n"#;'
    source = "\n".join([comment, raw, text, "let x = 1;"])
    assert list(long_lines(source, 20)) == [1, 6]
    assert list(long_lines(source, 21)) == [6]
    assert not list(long_lines(source, 23))


# ---------------------------------------------------------------- how files open, and forbidden words


def test_every_source_file_opens_with_its_purpose():
    for path in tracked("*.rs"):
        assert path.read_text().startswith("//!"), f"{name_of(path)} does not open with //!"
    for path in tracked("*.py"):
        assert ast.get_docstring(ast.parse(path.read_text())), f"{name_of(path)} has no docstring"


def test_pictures_in_comments_are_closed():
    """The text after an open picture is shown as a part of it."""
    for path in tracked("*.rs"):
        for comment in re.findall(r"(?:^[ \t]*//[/!].*\n)+", path.read_text(), re.MULTILINE):
            fences = re.findall(r"^\s*//[/!] ?```(\S*)", comment, re.MULTILINE)
            assert len(fences) % 2 == 0 and not any(fences[1::2]), f"{name_of(path)} has a picture without an end"


def test_no_reminders_in_the_code():
    words = re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME|X" + r"XX|unimpl" + r"emented!)")
    for path in tracked("*.rs", "*.py", "dev", "*.md", "*.toml"):
        found = words.search(path.read_text())
        assert not found, f"{name_of(path)} holds {found.group()}"


# ---------------------------------------------------------------- links between documents


def anchors(path):
    titles = re.findall(r"^#+\s+(.*)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_links_between_documents_resolve():
    for page in tracked("*.md"):
        text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
        for link in re.findall(r"\]\(([^)\s]+)\)", text):
            if re.match(r"[a-z]+:", link):
                continue
            target, _, anchor = link.partition("#")
            other = (page.parent / target).resolve() if target else page
            assert other.exists(), f"{name_of(page)} links to {link}, which is not there"
            if anchor and other.suffix == ".md":
                assert anchor in anchors(other), f"{name_of(page)} links to {link}: no such heading"


if __name__ == "__main__" and sys.argv[1:] == ["--shrink"]:
    shrink()
