"""Sort, merge, split and view files far larger than memory.

Every function works within the memory that it is given, shows its plan and its report, and writes its output whole or
not at all. The names are loaded when they are first used, so that the import is quick.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ascot import cluster as cluster
    from ascot import errors as errors
    from ascot import index as index
    from ascot import lab as lab
    from ascot import plan as plan
    from ascot import trace as trace
    from ascot._native import __version__ as __version__
    from ascot.batches import Batch as Batch
    from ascot.batches import Batches as Batches
    from ascot.errors import AscotError as AscotError
    from ascot.errors import AscotWarning as AscotWarning
    from ascot.errors import Damaged as Damaged
    from ascot.errors import FunctionFailed as FunctionFailed
    from ascot.errors import MemoryLimit as MemoryLimit
    from ascot.errors import NoSpace as NoSpace
    from ascot.errors import NotSorted as NotSorted
    from ascot.errors import Resumable as Resumable
    from ascot.errors import SchemaMismatch as SchemaMismatch
    from ascot.estimates import probe as probe
    from ascot.estimates import simulate as simulate
    from ascot.figures import BowtiePlan as BowtiePlan
    from ascot.figures import CheapestCluster as CheapestCluster
    from ascot.figures import ClusterPlan as ClusterPlan
    from ascot.figures import FilesPlan as FilesPlan
    from ascot.figures import Profile as Profile
    from ascot.figures import Simulation as Simulation
    from ascot.flows import FlowInput as FlowInput
    from ascot.flows import flow as flow
    from ascot.jobs import Job as Job
    from ascot.jobs import Settings as Settings
    from ascot.jobs import merge as merge
    from ascot.jobs import reshape as reshape
    from ascot.jobs import resume as resume
    from ascot.jobs import sort as sort
    from ascot.jobs import split as split
    from ascot.layouts import Csv as Csv
    from ascot.layouts import Fixed as Fixed
    from ascot.layouts import Floats as Floats
    from ascot.layouts import Integers as Integers
    from ascot.layouts import Key as Key
    from ascot.layouts import Lines as Lines
    from ascot.layouts import Prefixed as Prefixed
    from ascot.layouts import asc as asc
    from ascot.layouts import column as column
    from ascot.layouts import desc as desc
    from ascot.progress import Progress as Progress
    from ascot.reports import Method as Method
    from ascot.reports import Pass as Pass
    from ascot.reports import Plan as Plan
    from ascot.reports import Report as Report
    from ascot.session import Session as Session
    from ascot.tables import Table as Table
    from ascot.tools import Checked as Checked
    from ascot.tools import Disorder as Disorder
    from ascot.tools import check as check
    from ascot.tools import gen as gen
    from ascot.views import Part as Part
    from ascot.views import View as View
    from ascot.views import view as view

# The module of each name.
_MODULES = {
    "_native": ("__version__",),
    "batches": ("Batch", "Batches"),
    "errors": (
        "AscotError",
        "AscotWarning",
        "Damaged",
        "FunctionFailed",
        "MemoryLimit",
        "NoSpace",
        "NotSorted",
        "Resumable",
        "SchemaMismatch",
    ),
    "estimates": ("probe", "simulate"),
    "figures": ("BowtiePlan", "CheapestCluster", "ClusterPlan", "FilesPlan", "Profile", "Simulation"),
    "flows": ("FlowInput", "flow"),
    "jobs": ("Job", "Settings", "merge", "reshape", "resume", "sort", "split"),
    "layouts": ("Csv", "Fixed", "Floats", "Integers", "Key", "Lines", "Prefixed", "asc", "column", "desc"),
    "progress": ("Progress",),
    "reports": ("Method", "Pass", "Plan", "Report"),
    "session": ("Session",),
    "tables": ("Table",),
    "tools": ("Checked", "Disorder", "check", "gen"),
    "views": ("Part", "View", "view"),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}
_SUBMODULES = ("cluster", "errors", "index", "lab", "plan", "trace")

__all__ = sorted([*(name for name in _MODULE_OF if name != "__version__"), *_SUBMODULES])


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name in _SUBMODULES:
        return import_module(f"ascot.{name}")
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'ascot' has no attribute {name!r}")
    value: object = getattr(import_module(f"ascot.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE_OF, *_SUBMODULES})
