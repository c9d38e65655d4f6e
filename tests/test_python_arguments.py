"""Every argument of every public function of the package: a wrong value is refused with its name and a remedy.

The table of wrong values is by the name of the argument, since an argument has one meaning everywhere. A function or
an argument that is missing in the tables fails the test.
"""

import inspect
import re
import typing

import ascot
import numpy
import pytest
from ascot import arguments, jobs

FLAG = [None, 3, "no", b"x"]
# Counts, and amounts of bytes.
COUNT = [-1, 2.5, "x", True, b"x", [3]]
AT_LEAST_ONE = [0, *COUNT]
BYTES = [-1, 0, 2.5, True, b"x", [3]]
REAL = ["x", b"x", [3], True, float("nan")]
WORD = [3, "none of these", b"x"]
TEXT = [3, b"x", [3]]
PATH = [3, b"x", [3], ""]
PATHS = [3, b"x", [3], [""]]
KEY = [2.5, b"x", [2.5], [None], [True]]
BYTES_KEY = [3, "x", [3]]
LAYOUT = [3, b"x", "none", "lines:0xzz"]
LAYOUTS = [3, b"x", "none", [3], ["none"]]
FILES = [None, 3, [3], 2.5]
NUMBERS = [b"x", [3], True, None]

WRONG = {
    "alpha": REAL, "any_format": FLAG, "ascii": FLAG, "binary": FLAG, "block": BYTES, "boundaries": PATH, "by": WORD,
    "by_key": KEY, "cache": WORD, "compress": [None, *WORD], "count": [None, *COUNT], "descending": FLAG,
    "direction": WORD, "directory": [None, *PATH], "elements": NUMBERS, "end": [None, "xy", "", 3], "epoch": COUNT,
    "exponents": NUMBERS, "fan_in": [1, *COUNT], "fields": [3, {"a": 1}, ["a"]], "fn": [None, 3, "x"],
    "files": AT_LEAST_ONE, "function_timeout": [0, -1, *REAL],
    "coordinator_usd_per_hour": [None, -1, *REAL], "usd_per_hour": [None, -1, *REAL],
    "group": COUNT, "growth": [b"x", [3], True], "growth_out": [b"x", [3], True], "header": FLAG, "inputs": COUNT,
    "jobs": AT_LEAST_ONE, "key": KEY, "key_bytes": COUNT, "keys": [None, 3, [3], "x"], "layout": LAYOUT,
    "length": AT_LEAST_ONE, "loops": [None, *COUNT], "memory": BYTES, "memory_elements": NUMBERS, "merge": FLAG,
    "merge_by": KEY, "method": [None, *WORD], "mode": [None, *WORD],
    "name": TEXT, "sort": [3, "x"],
    "most_nodes": [None, *AT_LEAST_ONE], "most_streams": COUNT, "network": [None, *WORD],
    "node_type": [None, *PATH], "node_types": [None, *PATHS], "nodes": [None, *AT_LEAST_ONE], "uniform": FLAG,
    "within": [0, -1, *REAL],
    "nulls": ["x", 3], "order": TEXT, "out": [None, *PATH], "output_layout": LAYOUTS, "outputs": COUNT,
    "params": PATH, "partition_by": WORD, "partitions": AT_LEAST_ONE, "parts": AT_LEAST_ONE, "path": [None, *PATH],
    "paths": [None, *PATHS], "peers": [None, *COUNT], "progress": [3, "x", b"x"], "quote": [None, "xy", 3],
    "read_stream": [None, *WORD], "record_bytes": AT_LEAST_ONE, "request": BYTES, "reverse": FLAG,
    "rollback": COUNT, "rounds": AT_LEAST_ONE, "schedule": [None, *TEXT], "scheme": WORD, "seconds": REAL,
    "seed": [None, *COUNT], "separator": ["xy", "", 3, b"x"], "size": BYTES, "skew": FLAG, "source": FILES,
    "sources": FILES, "stable": FLAG, "start": BYTES_KEY, "stop": BYTES_KEY, "store": FLAG, "strict": FLAG,
    "sweep": FLAG, "target": [None, True, 2.5, b"x"], "temp": PATHS, "threads": AT_LEAST_ONE,
    "to": [None, *PATH], "transport": [None, *WORD],
    "top": COUNT, "total": BYTES, "type": WORD, "unique": FLAG, "value_bytes": COUNT,
    "values": [None, 3, [3], "x"], "view": PATH, "volume": [3, b"x", ""], "work": PATH,
    "shuffle": [None, *WORD], "output_as": [None, *WORD], "reduce_input": [None, *WORD],
    "settings": [3, "x", {"ahead": 4}], "spare_cores": [None, 5000, *COUNT], "batch": [16, 1 << 40, "x", *BYTES],
    "ahead": [None, 65, *AT_LEAST_ONE], "read_size": [None, 16, "2GiB", *BYTES],
    "write_size": [None, 16, "2GiB", *BYTES], "write_depth": [None, 65, *AT_LEAST_ONE],
    "write_memory": [16, "2TiB", *BYTES],
    "address": [3, b"x"], "output": [None, *PATH], "memory_per_node": BYTES, "workers_per_node": AT_LEAST_ONE,
    "storage_options": [3, "x", [3], {3: 4}],
    "job": PATH, "map": [3, "x"], "reduce": [3, "x"], "combine": [3, "x"], "partition": [3, "x"],
    "write_exponents": [b"x", [3], True], "write_stream": [None, *WORD], "backends": [3, b"x", [3]],
    "connections": [0, 2.5, "x", [0], [2.5]], "streams": NUMBERS, "kind": [3, b"x", [3]],
}  # fmt: skip
# Where an argument has another meaning, or may be left out.
OF_FUNCTION = {
    ("sort", "to"): PATH, ("plan.sort", "to"): PATH, ("plan.merge", "to"): PATH,
    ("plan.sort", "source"): [3, [3]], ("plan.split", "source"): [3, [3]],
    ("plan.merge", "sources"): [3, [3]], ("plan.reshape", "sources"): [3, [3]],
    ("plan.split", "parts"): COUNT, ("plan.reshape", "parts"): COUNT,
    ("flow", "inputs"): FILES, ("flow", "outputs"): [3, b"x", [3], [""]], ("flow", "layout"): LAYOUTS,
    ("lab.disk", "inputs"): PATHS, ("lab.disk", "outputs"): PATHS, ("lab.sort", "fan_in"): NUMBERS,
    ("gen", "start"): [None, *COUNT], ("cluster.gen", "start"): [None, *COUNT],
    ("simulate", "skew"): [None, *TEXT], ("View.keys", "start"): [[3], True],
    ("View.keys", "stop"): [[3], True], ("View.open", "mode"): ["r", "wb"],
    ("asc", "nulls"): WORD, ("desc", "nulls"): WORD, ("column", "nulls"): WORD, ("Key", "nulls"): WORD,
    ("column", "type"): WORD, ("Key", "type"): WORD, ("Fixed", "key"): KEY,
    ("Trace.events", "start"): [-1, *REAL], ("Trace.events", "stop"): [-1, *REAL],
    ("Session.run", "job"): [],
    ("plan.cluster", "connections"): AT_LEAST_ONE, ("plan.cheapest_cluster", "connections"): AT_LEAST_ONE,
    ("cluster.sort", "inputs"): [None, *PATHS], ("cluster.map_reduce", "inputs"): [None, *PATHS],
    ("cluster.map_reduce", "map"): [None, 3], ("cluster.map_reduce", "reduce"): [None, 3],
    ("cluster.resume", "transport"): WORD, ("cluster.resume", "job"): [None, *PATH],
    ("cluster.remove", "job"): [None, *PATH],
}  # fmt: skip


def copy(inputs):
    for batch in inputs[0]:
        yield 0, batch


# A function, or its first argument and the names of its methods; and arguments with which it works.
FUNCTIONS = {
    "sort": (ascot.sort, {"source": "in", "to": "out"}),
    "merge": (ascot.merge, {"sources": ["ordered"], "to": "out"}),
    "reshape": (ascot.reshape, {"sources": ["ordered"], "to": "r-{}", "parts": 2}),
    "split": (ascot.split, {"source": "in", "to": "s-{}", "parts": 2}),
    "resume": (ascot.resume, {"directory": "none"}),
    "flow": (ascot.flow, {"inputs": ["in"], "outputs": ["out"], "fn": copy}),
    "gen": (ascot.gen, {"count": 10, "to": "g"}),
    "check": (ascot.check, {"source": "in"}),
    "view": (ascot.view, {"path": "view"}),
    "probe": (ascot.probe, {"directory": "none"}),
    "simulate": (ascot.simulate, {"memory": "1MiB"}),
    "asc": (ascot.asc, {"target": 1}),
    "desc": (ascot.desc, {"target": 1}),
    "column": (ascot.column, {"target": 1}),
    "Key": (ascot.Key, {"target": 1}),
    "Lines": (ascot.Lines, {}),
    "Csv": (ascot.Csv, {}),
    "Fixed": (ascot.Fixed, {"length": 100}),
    "Prefixed": (ascot.Prefixed, {"type": "u8"}),
    "Integers": (ascot.Integers, {"type": "u64"}),
    "Floats": (ascot.Floats, {"type": "f64"}),
    "Session": (ascot.Session, {"memory": "64MiB"}),
    "index.open": (ascot.index.open, {"path": "index"}),
    "index.writer": (ascot.index.writer, {"path": "new"}),
    "plan.sort": (ascot.plan.sort, {"source": "in", "to": "out"}, {"size": "1TB"}),
    "plan.merge": (ascot.plan.merge, {"sources": ["ordered"], "to": "out"}, {"size": "1TB", "inputs": 4}),
    "plan.split": (ascot.plan.split, {"source": "in", "to": "s-{}", "parts": 2}, {"size": "1TB", "parts": 4}),
    "plan.reshape": (ascot.plan.reshape, {"sources": ["ordered"], "to": "r-{}", "parts": 2},
                     {"size": "1TB", "inputs": 4, "parts": 4}),
    "plan.bowtie": (ascot.plan.bowtie, {}),
    "plan.cluster": (ascot.plan.cluster, {"size": "1TB", "nodes": 4, "node_type": "ec2-i2.8xlarge"}),
    "plan.cheapest_cluster": (ascot.plan.cheapest_cluster, {"size": "1TB"}),
    "trace.open": (ascot.trace.open, {"path": "none"}),
    "trace.compare": (ascot.trace.compare, {"paths": ["none"]}),
    "lab.streams": (ascot.lab.streams, {"out": "lab", "elements": 1000, "exponents": 12, "loops": 2}),
    "lab.sort": (ascot.lab.sort, {"out": "lab", "elements": 1000, "loops": 2}),
    "lab.disk": (ascot.lab.disk, {"inputs": "none", "outputs": "none"}),
    "lab.net": (ascot.lab.net, {"size": "1MiB"}),
    "lab.read_streams": (ascot.lab.read_streams, {"path": "none"}),
    "lab.read_sorts": (ascot.lab.read_sorts, {"path": "none"}),
    "lab.read_disk": (ascot.lab.read_disk, {"path": "none"}),
    "lab.read_net": (ascot.lab.read_net, {"path": "none"}),
    "cluster.sort": (ascot.cluster.sort, {"inputs": ["in"], "output": "out", "address": "local:0"}),
    "cluster.Settings": (ascot.cluster.Settings, {}),
    "cluster.map_reduce": (ascot.cluster.map_reduce,
                           {"inputs": ["in"], "map": copy, "reduce": copy, "output": "out"}),
    "cluster.open_parts": (ascot.cluster.open_parts, {"output": "none"}),
    "cluster.resume": (ascot.cluster.resume, {"job": "none"}),
    "cluster.gen": (ascot.cluster.gen, {"count": 10, "to": "many", "address": "local:0"}),
    "cluster.check": (ascot.cluster.check, {"source": "in", "address": "local:0"}),
    "cluster.diskbench": (ascot.cluster.diskbench, {"address": "local:0"}),
    "cluster.netbench": (ascot.cluster.netbench, {"address": "local:0"}),
    "cluster.node_type": (ascot.cluster.node_type, {"to": "type", "usd_per_hour": 1.0, "address": "local:0"}),
    "cluster.remove": (ascot.cluster.remove, {"job": "none"}),
    "View.keys": (ascot.View.keys, {}),
    "View.open": (ascot.View.open, {}),
    "View.batches": (ascot.View.batches, {}),
    "View.write": (ascot.View.write, {"to": "out"}),
    "Index.get": (ascot.index.Index.get, {"keys": [b"aaaa"]}),
    "Index.get_batch": (ascot.index.Index.get_batch, {"keys": [b"aaaa"]}),
    "Index.range": (ascot.index.Index.range, {}),
    "Index.batches": (ascot.index.Index.batches, {}),
    "Writer.append": (ascot.index.Writer.append, {"keys": [b"aaaa"], "values": [b"x"]}),
    "Trace.events": (ascot.trace.Trace.events, {}),
}  # fmt: skip
# Functions whose arguments are those of another, and results that nobody makes.
WITHOUT = {
    "Batch", "Batches", "BowtiePlan", "CheapestCluster", "Checked", "ClusterPlan", "Disorder", "FilesPlan",
    "FlowInput", "Job", "Method", "Part", "Pass", "Plan", "Profile", "Progress", "Report", "Session.run", "Settings",
    "Simulation", "Table", "View",
    "cluster.ClusterReport", "cluster.NodeShare", "cluster.Phase", "cluster.Finished", "cluster.Series",
    "cluster.Stage", "index.Index", "index.Record", "index.Writer", "trace.Trace",
}  # fmt: skip
MODULES = ("cluster", "index", "lab", "plan", "trace")


@pytest.fixture(scope="module")
def objects(module_disk):
    """A directory with the files of the calls, and an object for the methods of each class."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(module_disk)
        module_disk.joinpath("in").write_text("b\na\n")
        module_disk.joinpath("ordered").write_text("a\nb\n")
        ascot.sort("in", view="view")
        with ascot.index.writer("index", key_bytes=4) as writer:
            writer.append([b"aaaa"], [b"1"])
        view, index = ascot.view("view"), ascot.index.open("index")
        with view, index, ascot.index.writer("written") as writer:
            yield {"View": view, "Index": index, "Writer": writer, "Trace": ascot.trace.Trace("t", None)}


def parameters(function):
    """The parameters of each form of a function."""
    forms = typing.get_overloads(function) or [function]
    for form in forms:
        found = [one for one in inspect.signature(form).parameters if one != "self"]
        if found[-1:] == ["settings"]:
            found = [*found[:-1], *jobs.Settings.__annotations__]
        yield found


def cases():
    for name, (function, *goods) in FUNCTIONS.items():
        forms = list(parameters(function))
        if len(goods) == 1:
            forms = [list(dict.fromkeys(parameter for form in forms for parameter in form))]
        for form, good in zip(forms, goods, strict=True):
            for parameter in form:
                yield pytest.param(name, good, parameter, id=f"{name}-{parameter}-{len(good)}")


@pytest.mark.parametrize(("name", "good", "parameter"), list(cases()))
def test_a_wrong_argument_is_named_with_what_is_accepted(name, good, parameter, objects):
    function = FUNCTIONS[name][0]
    of = objects.get(name.partition(".")[0])
    first = () if of is None else (of,)
    for value in OF_FUNCTION.get((name, parameter), WRONG[parameter]):
        with pytest.raises((TypeError, ValueError)) as caught:
            made = function(*first, **{**good, parameter: value})
            if inspect.isgenerator(made):
                next(made)
        assert type(caught.value) is TypeError or isinstance(caught.value, ascot.AscotError), caught.value
        shown = [arguments.shown(one) for one in (value, *(value if isinstance(value, list | dict) else ()))]
        given = "|".join(re.escape(one) for one in shown)
        form = rf"(an element of )?{parameter} is .+, not ({given})|(an element of )?{parameter}=({given}): .*give .+"
        form += rf"|{parameter}=({given}): a key is bytes.+"
        # Values that may be secret are not shown.
        form += rf"|storage_options is a dictionary(, not {type(value).__name__}| whose keys are texts)"
        assert re.fullmatch(form, str(caught.value)), str(caught.value)


def forms():
    for name, (function, *goods) in FUNCTIONS.items():
        for good in goods:
            yield pytest.param(name, function, good, id=f"{name}-{len(good)}")


@pytest.mark.parametrize(("name", "function", "good"), list(forms()))
def test_an_argument_that_does_not_exist_is_an_error_of_the_public_function(name, function, good, objects):
    of = objects.get(name.partition(".")[0])
    calls = [{**good, "no_such": 1}]
    # All forms of a function need an argument if its good ones cannot be left out.
    if good and (typing.get_overloads(function) or needs_arguments(function)):
        calls.append({})
    for arguments_of_call in calls:
        with pytest.raises(TypeError) as caught:
            function(*(() if of is None else (of,)), **arguments_of_call)
        told = str(caught.value)
        # Settings that all jobs have are told with their names instead.
        own = re.match(r"([\w.]+)\(\) (got an unexpected|missing \d+ required)", told)
        assert own is None or own[1].removesuffix(".__init__").endswith(name.rpartition(".")[2]), told
        assert own is not None or told.startswith("unexpected argument 'no_such'; there are"), told


def needs_arguments(function):
    found = inspect.signature(function).parameters.values()
    return any(one.default is one.empty and one.kind is not one.VAR_KEYWORD for one in found if one.name != "self")


def _is_error(value):
    return inspect.isclass(value) and issubclass(value, BaseException)


def test_every_public_function_is_in_the_table():
    modules = {"": ascot, **{f"{name}.": getattr(ascot, name) for name in MODULES}}
    named = {prefix + name: getattr(module, name) for prefix, module in modules.items() for name in module.__all__}
    found = {name for name, value in named.items() if not inspect.ismodule(value) and not _is_error(value)}
    assert found - FUNCTIONS.keys() - WITHOUT == set()


def test_numbers_and_flags_of_numpy_are_accepted(objects):
    ascot.split("in", to="n-{}", parts=numpy.int32(2), threads=numpy.uint8(1))
    job = ascot.sort("in", to="out", reverse=numpy.True_, memory=numpy.int64(64 << 20), top=numpy.int64(1))
    assert job.report.records_out == 1
    plan = ascot.plan.bowtie(numpy.int16(3), 3, alpha=numpy.float32(0.5), volume="flash")
    assert plan.inputs == 3
