"""Imports point one way: cli, plugin -> training -> service -> jobs -> digest -> report -> rules -> wording
-> facts -> trace; arrays, errors and the vocabulary are open to all. No layer skips its neighbor. Inside a
layer, rooms: leaves of facts do not import one another, and a rule imports no rule."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import tb_gpudiag
from tb_gpudiag.rules.all import RULES
from tests.with_each import with_each

pytestmark = pytest.mark.slow  # each module of the package is parsed

PACKAGE = Path(tb_gpudiag.__file__).parent

LAYERS = ("trace", "facts", "wording", "rules", "report", "digest", "jobs", "service", "training", "cli")
"""From the bottom up: a module may import from its own layer and from those before it."""

SAME_AS = {"notebook": "cli", "pages": "cli", "plugin": "cli", "loader": "cli", "__main__": "cli"}
"""Modules and packages that stand on the level of another."""

OPEN_TO_ALL = {"_version", "arrays", "errors", "frozen", "step_time", "version", "vocabulary"}

REASONS = {
    "trace": "reading has no opinions: it knows bytes and columns, and nothing of what they mean",
    "facts": "facts are figures without thresholds and words: they must not depend on what is made of them",
    "wording": "words and formats know nothing of what is said with them",
    "rules": "a rule sees facts only: how its finding is shown or sent is no matter of a rule's",
    "report": "a Report is the same wherever it is read: it must not know who serves it",
    "digest": "a digest is what one trace leaves behind: it knows nothing of the traces beside it",
    "jobs": "jobs compare digests: they never open a trace",
    "training": "what runs inside a training job serves neither a page nor a command",
    "service": "the service runs analyses: it must not know whether a page or a command asked",
    "cli": "the command and the plugin stand side by side on top",
}

# The package's __init__ is the public API: it reaches into any layer, but only inside its functions, on use.
LAZY = {"__init__"}

# TensorBoard imports the loader at start, and whatever fails there stops TensorBoard itself.
LOADER_MAY_IMPORT = {"tensorboard.plugins", "tensorboard.plugins.base_plugin"}

IMPORT_BY_NAME = ("import_module", "__import__")

statements_tell: set[ast.AST] = set()
"""Trees of modules that import by statements only."""


@cache
def modules() -> list[tuple[str, ast.Module]]:
    """(dotted name below tb_gpudiag, syntax tree) of every module."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        relative = path.relative_to(PACKAGE).with_suffix("")
        if "__pycache__" not in relative.parts:
            text = path.read_text(encoding="utf-8")
            tree = ast.parse(text, str(path))
            found.append((".".join(relative.parts), tree))
            if not any(function in text for function in IMPORT_BY_NAME):
                statements_tell.add(tree)
    return found


@cache
def imports(module: str, tree: ast.AST) -> list[tuple[str, int]]:
    """(dotted name, line) of all that a module imports, also inside functions and for types only."""
    return list(_imports(["tb_gpudiag", *module.split(".")[:-1]], tree))


def _statements(tree: ast.AST) -> Iterator[ast.AST]:
    """Every statement, however deep. Most nodes are expressions: these would take ten times as long."""
    todo = [tree]
    for node in todo:
        for block in ("body", "orelse", "finalbody", "handlers", "cases"):
            inner = getattr(node, block, ())
            todo.extend(inner if isinstance(inner, list) else ())
    return iter(todo)


def _imports(package: list[str], tree: ast.AST) -> Iterator[tuple[str, int]]:
    for node in _statements(tree) if tree in statements_tell else ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((f"{_source(node, package)}.{alias.name}", node.lineno) for alias in node.names)
        elif isinstance(node, ast.Call) and (name := _imported_by_name(node)):
            yield name, node.lineno


def _source(node: ast.ImportFrom, package: list[str]) -> str:
    """What `from … import` names, made absolute."""
    base = package[: len(package) - node.level + 1] if node.level else []
    return ".".join([*base, *([node.module] if node.module else [])])


def _imported_by_name(call: ast.Call) -> str:
    """The module that `import_module("…")` imports, or ""."""
    name = call.args[0] if call.args and _imports_by_name(call) else None
    return name.value if isinstance(name, ast.Constant) and isinstance(name.value, str) else ""


def _imports_by_name(call: ast.Call) -> bool:
    function = call.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    return name in IMPORT_BY_NAME


def layer(dotted: str) -> str | None:
    """The layer of a name below tb_gpudiag; None for what is open to all, and for the package itself."""
    top = dotted.removeprefix("tb_gpudiag").lstrip(".").split(".")[0]
    if not top or top in OPEN_TO_ALL:
        return None
    return SAME_AS.get(top, top)


def breaches(module: str, tree: ast.AST) -> Iterator[str]:
    own = layer(module)
    for name, line in imports(module, tree):
        if name.split(".")[0] != "tb_gpudiag":
            continue
        other = layer(name)
        if other is None or module in LAZY or other not in LAYERS:
            continue  # tb_gpudiag.__version__, the public API's functions
        path = f"tb_gpudiag/{module.replace('.', '/')}.py:{line} imports {name}"
        if own is None:
            yield f"{path}\n  {module} is open to all layers, so it may import none of them"
        elif LAYERS.index(other) > LAYERS.index(own):
            yield f"{path}\n  {own} may not import {other}: {REASONS[own]}"


def test_imports_point_one_way() -> None:
    found = [breach for module, tree in modules() for breach in breaches(module, tree)]
    assert not found, "\n" + "\n".join(found)


KNOWS = {
    "trace": set(),
    "facts": {"trace"},
    "wording": set(),
    "rules": {"facts", "wording"},
    "report": {"rules", "facts", "wording"},
    "digest": {"report", "rules", "facts", "wording"},
    "jobs": {"digest", "report", "rules", "wording"},
    "service": {"jobs", "digest", "report", "wording"},
    "training": {"service", "jobs", "digest", "report", "wording"},
    "cli": {"training", "service", "jobs", "digest", "report", "wording"},
}
"""The layers that each layer reads. It skips none: what lies deeper is behind one of these."""

FILES = "trace.files"
"""What a path of a log directory is, and its bytes. Whoever lists, copies or serves files asks it."""

REACHES_THROUGH = {
    ("report.diagnosis", "trace.read"): "the way from a file to its report starts here",
    (
        "report.diagnosis",
        "trace.files_beside",
    ): "and from its log of torch.compile and the captures of its graphs",
    (
        "report.building.hang_report",
        "trace.flight_recorder",
    ): "so does the way from a job's dumps to their report",
    ("report.building.clock_report", "trace.step_clocks"): "and from what step clocks wrote",
    ("report.building.clock_words", "trace.step_clocks"): "says what a rank said of itself",
    ("report.slices.clock_slice", "trace.step_clocks"): "the curves of steps draw what was written",
    ("training", "trace.step_clocks"): "the clock writes what is read there",
    ("report.annotate", "trace"): "an annotated trace is a copy of the trace",
    ("report.dispute", "trace"): "so is an excerpt, of a part of it",
    ("report.slices", "trace.events"): "the timeline and the map of segments draw what was recorded",
    ("report.building", "trace.events"): "parts of the report say what was recorded",
    ("digest.work_tables", "trace.events"): "operators of the step window are counted for comparisons",
    (
        "rules.recording.secrets_recorded",
        "trace.credentials",
    ): "says from which number on credentials go uncounted",
    ("jobs", "facts.core.intervals"): "arithmetic with intervals of time",
    ("jobs", "facts.memory.floor"): "the slope of a curve",
    ("service.analyses", "facts.facts"): "an analysis keeps facts between report and digest",
    ("cli.scrub", "trace.credentials"): "the command writes a copy of the file without them",
    ("cli.formats", "rules.answer"): "`--fail-on` takes severities",
}
"""(module or room, what it imports): why it reaches through its neighbor."""


def skips(module: str, tree: ast.AST) -> Iterator[tuple[str, tuple[str, str] | None]]:
    """Imports of layers that the module's layer does not read, each with its entry of REACHES_THROUGH."""
    own = layer(module)
    if own is None or module in LAZY:
        return
    for name, line in imports(module, tree):
        other = layer(name) if name.startswith("tb_gpudiag.") else None
        below = name.removeprefix("tb_gpudiag.")
        if other is None or other in {own, *KNOWS[own]} or _is_in(below, FILES):
            continue
        excuse = next((e for e in REACHES_THROUGH if _is_in(module, e[0]) and _is_in(below, e[1])), None)
        yield f"tb_gpudiag/{module.replace('.', '/')}.py:{line} imports {name}, past its neighbor", excuse


def _is_in(dotted: str, place: str) -> bool:
    return dotted == place or dotted.startswith(place + ".")


def test_no_layer_skips_its_neighbor() -> None:
    found = [skip for module, tree in modules() for skip in skips(module, tree)]
    assert not [path for path, excuse in found if excuse is None]
    assert {excuse for _, excuse in found} == set(REACHES_THROUGH), "delete entries that nothing needs"


LEAVES = ("memory", "kernels", "launching", "waiting", "stepping", "replay", "operators")
"""Rooms of facts/ beside its core. Each imports the core and trace/; facts.py imports all of them."""


def room(dotted: str) -> str | None:
    """The room of a name below tb_gpudiag, such as "facts.memory"; None at the top of a layer."""
    parts = dotted.removeprefix("tb_gpudiag.").split(".")
    return ".".join(parts[:2]) if len(parts) > 1 and (PACKAGE / parts[0] / parts[1]).is_dir() else None


def crossings(module: str, tree: ast.AST) -> Iterator[str]:
    """Where a room imports one that it may not know."""
    own = room(module)
    for name, line in imports(module, tree):
        other = room(name) if name.startswith("tb_gpudiag.") else None
        if own is None or other is None or own == other or own.split(".")[0] != other.split(".")[0]:
            continue
        path = f"tb_gpudiag/{module.replace('.', '/')}.py:{line} imports {name}"
        if own == "facts.core":
            yield f"{path}\n  the core of facts/ must not depend on a leaf: move what it needs into the core"
        elif own.startswith("facts.") and other != "facts.core":
            yield f"{path}\n  leaves of facts/ do not know one another: facts.py brings them together"
        elif own.startswith("rules.") and other != "rules.shared":
            yield f"{path}\n  families of rules do not know one another: share through rules/shared/"
        elif own == "report.views":
            yield f"{path}\n  a view knows the Report only"


def test_rooms_import_only_what_they_may() -> None:
    found = [crossing for module, tree in modules() for crossing in crossings(module, tree)]
    assert not found, "\n" + "\n".join(found)


@with_each(
    ("module", "code", "allowed"),
    [
        ("facts.memory.x", "from tb_gpudiag.facts.core.recording import Steps", True),
        ("facts.memory.x", "from tb_gpudiag.facts.kernels.kernels import Kernels", False),
        ("facts.core.x", "from tb_gpudiag.facts.memory import curve", False),
        ("facts.facts", "from tb_gpudiag.facts.memory.curve import Curve", True),
        ("rules.idle.x", "from tb_gpudiag.rules.shared.lost_time import Lost", True),
        ("rules.idle.x", "from tb_gpudiag.rules.rule import Rule", True),
        ("rules.idle.x", "from tb_gpudiag.rules.launches.launch_bound import issuing", False),
        ("rules.shared.x", "from tb_gpudiag.rules.idle import host_bound", False),
        ("report.views.x", "from tb_gpudiag.report.building import build", False),
    ],
)
def test_a_crossing_is_seen(module: str, code: str, allowed: bool) -> None:
    assert (not list(crossings(module, ast.parse(code)))) is allowed


def test_rules_do_not_import_one_another() -> None:
    names = {f"tb_gpudiag.rules.{rule.family}.{rule.name}" for rule in RULES}
    found = [
        f"tb_gpudiag/{module.replace('.', '/')}.py:{line} imports {name}: share through rules/shared/"
        for module, tree in modules()
        if f"tb_gpudiag.{module}" in names
        for name, line in imports(module, tree)
        if any(name == other or name.startswith(f"{other}.") for other in names)
    ]
    assert not found, "\n" + "\n".join(found)


MOST_IMPORTS = 19
"""From a command or the page down to a module without imports: so many steps are between a figure as it is
shown and what it comes from."""


def longest_chain(module: str, direct: dict[str, list[str]], known: dict[str, list[str]]) -> list[str]:
    """The module, one that it imports, one that this imports, and so on, as long as there is."""
    if module not in known:
        known[module] = []  # an import in a circle ends here
        below = [longest_chain(other, direct, known) for other in direct[module]]
        known[module] = [module, *max(below, key=len, default=[])]
    return known[module]


def imported_modules(trees: dict[str, ast.Module]) -> dict[str, list[str]]:
    """The modules of `trees` that each of them imports."""
    found = {}
    for module, tree in trees.items():
        names = [name.removeprefix("tb_gpudiag.") for name, _ in imports(module, tree)]
        found[module] = [
            other for name in names for other in (name, name.rpartition(".")[0]) if other in trees
        ]
    return found


def test_no_chain_of_imports_is_long() -> None:
    """What is imported inside functions, or for types alone, is no link."""
    at_import = {
        module: ast.Module([node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)], [])
        for module, tree in modules()
    }
    direct = imported_modules(at_import)
    known: dict[str, list[str]] = {}
    chain = max((longest_chain(module, direct, known) for module in direct), key=len)
    assert len(chain) - 1 <= MOST_IMPORTS, "\n".join(chain)


def a_circle(direct: dict[str, list[str]]) -> list[str]:
    """Modules that import one another in turn; empty if there are none."""
    try:
        TopologicalSorter(direct).prepare()
    except CycleError as error:
        found: list[str] = error.args[1]
        return found
    return []


def test_no_modules_import_one_another() -> None:
    """Also inside functions and for types: who reads one of them has to read the other first."""
    direct = imported_modules(dict(modules()))
    direct = {module: [o for o in others if o != module] for module, others in direct.items()}
    assert not a_circle(direct), "these import one another"


def test_a_circle_is_seen() -> None:
    trees = {
        "rules.a": ast.parse("from tb_gpudiag.rules.b import B"),
        "rules.b": ast.parse("def f():\n    from tb_gpudiag.rules.c import C"),
        "rules.c": ast.parse("if TYPE_CHECKING:\n    from tb_gpudiag.rules.a import A"),
    }
    assert set(a_circle(imported_modules(trees))) == {"rules.a", "rules.b", "rules.c"}
    del trees["rules.c"]
    assert not a_circle(imported_modules(trees))


def test_no_two_modules_have_one_name() -> None:
    """Whoever looks for `memory_peak.py` finds one file. A command may have the name of what it is about."""
    seen: dict[str, list[str]] = {}
    for module, _ in modules():
        if not module.startswith("cli.") and not module.endswith(("__init__", "__main__")):
            seen.setdefault(module.split(".")[-1], []).append(module)
    twice = {name: found for name, found in seen.items() if len(found) > 1}
    assert not twice


BOTH_PUBLIC = {"DiagnosisCallback"}
"""Callbacks of two libraries: users import one of them, by its module."""


def test_no_two_classes_have_one_name() -> None:
    """Whoever reads `Change` knows which one is meant."""
    seen: dict[str, list[str]] = {}
    for module, tree in modules():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                seen.setdefault(node.name, []).append(module)
    twice = {name: found for name, found in seen.items() if len(found) > 1 and name not in BOTH_PUBLIC}
    assert not twice


RAW = {"events", "memory", "segments"}
"""What `trace/` reads. Facts are made of it; a rule that looked at it would count what no other sees."""


def raw_reads(module: str, tree: ast.AST) -> Iterator[str]:
    """Where a rule takes columns of the trace: `facts.events`, `facts.trace.memory`, `facts.host.events`."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute) or node.attr not in RAW:
            continue
        owner = ast.unparse(node.value).split(".")
        if owner[-1] == "trace" or (node.attr == "events" and owner[-1] in {"facts", "host", "tree", "busy"}):
            yield (
                f"tb_gpudiag/{module.replace('.', '/')}.py:{node.lineno} reads {ast.unparse(node)}\n"
                "  a rule never reads raw events: what it counts is a fact, computed once for all"
            )


def test_rules_read_facts_and_no_events() -> None:
    found = [
        read for module, tree in modules() if layer(module) == "rules" for read in raw_reads(module, tree)
    ]
    assert not found, "\n" + "\n".join(found)


@with_each(
    ("code", "raw"),
    [
        ("def check(facts, taken): return len(facts.events)", True),
        ("def f(time): return time.facts.events.names", True),
        ("def f(facts): return facts.trace.memory.bytes", True),
        ("def f(facts): return facts.host.events", True),
        ("def f(facts): return facts.trace.events_read, facts.memory[0].events", False),
        ("def f(kernels): return kernels.event", False),
    ],
)
def test_a_raw_read_is_seen(code: str, raw: bool) -> None:
    assert bool(list(raw_reads("rules.x", ast.parse(code)))) is raw


def test_every_module_has_its_layer() -> None:
    unknown = {module for module, _ in modules() if layer(module) not in {None, *LAYERS}} - LAZY
    assert not unknown, f"add these to LAYERS, SAME_AS or OPEN_TO_ALL: {sorted(unknown)}"


@with_each(
    ("module", "code", "allowed"),
    [
        ("rules.x", "from tb_gpudiag.facts.facts import Facts", True),
        ("rules.x", "from tb_gpudiag.report.building.build import build_report", False),
        ("rules.x", "def f():\n    from tb_gpudiag import report", False),
        ("rules.x", "from ..report import build", False),
        ("rules.x", "import tb_gpudiag.cli.main", False),
        (
            "rules.x",
            "import importlib\nimportlib.import_module('tb_gpudiag.service.analyses.analysis_queue')",
            False,
        ),
        ("facts.x", "from tb_gpudiag.trace.events import Events", True),
        ("facts.x", "if TYPE_CHECKING:\n    from tb_gpudiag.rules.rule import Rule", False),
        ("trace.x", "from tb_gpudiag.errors import TraceError", True),
        ("errors", "from tb_gpudiag.trace import read", False),
        ("plugin", "from tb_gpudiag.service.analyses.analysis_queue import AnalysisQueue", True),
    ],
)
def test_a_breach_is_seen_however_it_is_written(module: str, code: str, allowed: bool) -> None:
    assert (not list(breaches(module, ast.parse(code)))) is allowed


def test_the_loader_needs_only_the_standard_library_and_tensorboards_base_plugin() -> None:
    tree = dict(modules())["loader"]
    at_import = ast.Module(
        [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom | ast.If | ast.Try)], []
    )
    needed = {name for name, _ in imports("loader", at_import)}
    strange = {
        name
        for name in needed
        if name.split(".")[0] not in sys.stdlib_module_names and name not in LOADER_MAY_IMPORT
    }
    assert not strange, (
        f"loader.py imports {sorted(strange)}: where one is missing, TensorBoard does not start"
    )


@with_each("layer_name", ["trace", "facts", "rules", "report", "cli"])
def test_reading_a_trace_does_not_need_torch(layer_name: str) -> None:
    for module, tree in modules():
        if layer(module) == layer_name:
            assert not [name for name, _ in imports(module, tree) if name.split(".")[0] == "torch"], module
