"""The Python package names arguments and calls where the libraries name flags and commands.

The texts are all string literals of the library crates outside of their tests.
"""

import re
import warnings

import ascot
import pytest
from ascot.wording import in_python
from rust_source import literals_without_tests
from support import ROOT

# The crates whose errors and warnings reach the package (crates/ascot-python/Cargo.toml).
CRATES = ("bowtie", "columns", "device", "index", "io", "lab", "model", "record", "sort", "trace")
# Sources whose texts with flags are those of commands that the package does not have, or of other programs.
OF_COMMANDS = (
    "ascot-lab/src/net/",  # peers on several machines
    "ascot-lab/src/sorts/study.rs",  # the name of a flag, which `LabError::Space` shows
    "ascot-lab/src/files.rs",  # marks of pages
    "ascot-trace/",  # recordings of a program
    "ascot-model/src/measured_profile.rs",  # a comment in a file
)
OF_COMMAND = (
    "--view auto needs",  # ascot plan
    " --csv --header",  # of a command after a pipe
    "| ascot sort",
    "name it after --: ascot flow",  # a program as the function of a flow
    "name some: ascot merge",  # a merge of views
    "ascot profiles ",
)
FLAG = re.compile(r"(?<![\w-])--[a-z]|(?<![\w-])-[kor](?![\w-])|\bascot (?!made|clean\b)[a-z]")
# What stays: commands that are named whole, and flags of other programs.
KEPT = ("'ascot clean --dry-run'", "ascot merge FILE... --view DIR", "ascot probe --list")


def texts():
    for crate in CRATES:
        for path in sorted((ROOT / "crates" / f"ascot-{crate}" / "src").rglob("*.rs")):
            name = path.relative_to(ROOT / "crates").as_posix()
            if not name.startswith(OF_COMMANDS) and "test" not in path.stem:
                for text in literals_without_tests(path.read_text()):
                    if FLAG.search(text) and not any(known in text for known in OF_COMMAND):
                        yield pytest.param(text, id=f"{name}: {text[:30]}")


FOUND = list(texts())


def test_texts_with_flags_are_found():
    assert len(FOUND) > 60


@pytest.mark.parametrize("text", FOUND)
def test_no_text_of_a_library_names_a_flag_in_python(text):
    # What is put in: columns in the list of columns, and a number elsewhere.
    given = text.replace("--header{separator} --key '{}'", "--header -t ';' --key 'a,-b:number,#3'")
    said = in_python(re.sub(r"\{[^{}]*\}", "7", given))
    for kept in KEPT:
        said = said.replace(kept, "")
    assert not FLAG.search(said), said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("give more (--memory 512MiB)", "give more (memory='512MiB')"),
        ("(--memory 16 KiB or more)", "(memory='16 KiB' or more)"),
        ("--alpha 0.5: with inputs", "alpha=0.5: with inputs"),
        ("--growth 1:0.3,50:0.8", "growth='1:0.3,50:0.8'"),
        ("--group with --schedule equal: no", "group= with schedule='equal': no"),
        ("write --key 'a:number'", "write key=ascot.column('a', type='number')"),
        (", or :text if it is text", ", or type='text' if it is text"),
        ("--key '#2:date' --null 'NA'", "key=ascot.column(2, type='date') nulls=['NA']"),
        ("is kept: ascot sort --resume '/a b/c'  continues it", "is kept: ascot.resume('/a b/c')  continues it"),
        (
            "to keep it first: --csv --header -t tab --key '-ts:number,who' (without -k and order letters)",
            "to keep it first: layout=ascot.Csv(separator='\\t', key=[ascot.column('ts', type='number', "
            "descending=True), 'who']), without another key",
        ),
        ("zcat a.gz | ascot sort --csv --header ...", "zcat a.gz | ascot sort --csv --header ..."),
    ],
)  # fmt: skip
def test_a_text_is_said_in_python(text, said):
    assert in_python(text) == said and in_python(said) == said


def test_errors_and_warnings_of_jobs_name_arguments(disk, monkeypatch):
    monkeypatch.chdir(disk)
    (disk / "in.csv").write_text("name,size\nb,2\na,1\n")
    with pytest.raises(ascot.MemoryLimit, match=r"give more \(memory='\d+"):
        ascot.sort("in.csv", to="out", memory=1000)
    with pytest.raises(FileNotFoundError, match="name another directory \\(view=DIR\\)"):
        ascot.sort("in.csv", view="none/view")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        ascot.sort("in.csv", to="out", layout="lines")
    texts = [str(one.message) for one in told if issubclass(one.category, ascot.AscotWarning)]
    assert any("layout=ascot.Csv(key=['name'])" in text for text in texts), texts


def test_plans_simulations_and_reports_name_arguments(disk):
    ascot.gen(200_000, to=disk / "a")
    options = {"layout": ascot.Fixed(100, key=slice(0, 10)), "memory": "8MiB"}
    told = [
        ascot.plan.sort(disk / "a", unique=True, **options),
        ascot.plan.sort(disk / "a", view=disk / "view", **options),
        ascot.plan.merge(size="8TB", inputs=100, memory="1GiB", volume="rotational"),
        ascot.plan.bowtie(inputs=8, outputs=4),
        ascot.simulate(inputs=8, outputs=4),
        ascot.sort(disk / "a", to=disk / "out", unique=True, method="merge", volume="rotational", **options).report,
    ]
    for one in told:
        for text in (one.text, *getattr(one, "notes", ()), *getattr(one, "notices", ())):
            assert not FLAG.search(text), text
    assert "unique=True drops" in told[0].text
