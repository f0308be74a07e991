"""What a rule is: a module `<name>.py` with a module-level `RULE`, next to its page `<name>.md`. It reads
facts only, and gives one of the answers of answer.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import lru_cache
from importlib import resources
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, TypeVar

from tb_gpudiag.facts.core.intervals import EMPTY, Intervals, merged
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.rules.answer import CannotTell, Clear, Finding, Fix, RuleAnswer, Severity
from tb_gpudiag.rules.shared.recording_advice import gpu_memory_not_recorded, no_gpu
from tb_gpudiag.vocabulary.patterns import lazy_re
from tb_gpudiag.vocabulary.recorded import FileKind

if TYPE_CHECKING:
    from tb_gpudiag.facts.facts import Facts

Claimed = Mapping[int, Intervals]
"""device -> the time that findings of earlier rules have claimed."""

NOTHING_CLAIMED: Claimed = {}


def with_claims(claimed: Claimed, claims: Claimed) -> Claimed:
    """Return both together."""
    return {**claimed, **{d: merged(claimed.get(d, EMPTY), claim) for d, claim in claims.items()}}


TRACES: frozenset[FileKind] = frozenset({"trace"})
MEMORY_FILES: frozenset[FileKind] = frozenset({"snapshot", "memory_timeline"})


FAMILIES = {
    "1": "idle",
    "2": "launches",
    "3": "transfers",
    "4": "memory",
    "5": "kernels",
    "6": "ranks",
    "9": "recording",
}
"""First digit of a rule's id -> the folder of rules/ that holds its module and page."""


def family_of(rule_id: str) -> str:
    """What a rule is about, by the id that a report names it by; "" if no rule has such an id."""
    return FAMILIES.get(rule_id[2:3], "")


Topic = (
    Literal["", "input", "python", "compile", "launch", "graph", "memory", "sync"]
    | Literal["mode", "steps", "growth", "part", "secrets", "slow rank", "uneven work"]
)
"""What a rule is about, for all that ask: they do not know it by its id. "": nobody asks.

input to sync: what the GPU waits for, as a verdict's limiter. mode: one that is on or off, whatever the
machine does beside the job. steps: time that other rules find, seen another way. growth: of host memory.
part: one that was not recorded. secrets: what others must not read; the job is no faster without. slow rank,
uneven work: for which the other ranks wait.
"""

Check = Callable[["Facts", Claimed], RuleAnswer]
"""Look at the facts and answer.

Time that earlier findings claimed is not lost time anymore: a rule's threshold, figures and claims are about
the rest, so that no nanosecond is claimed twice.
"""


class Need(NamedTuple):
    """What a rule cannot do without: whether it is there, and what to say where it is not."""

    there: Callable[[Facts], object]
    lack: Callable[[Facts], CannotTell]


GPU_MEMORY = Need(lambda facts: facts.gpu_memory, gpu_memory_not_recorded)

P = TypeVar("P", bound="ChosenTime")


class ChosenTime(Protocol):
    """Time that a rule is about. share: of the step window."""

    @property
    def share(self) -> float: ...


def speaks_from(
    least_share: float,
    choose: Callable[[Facts, Claimed], P],
    too_little: Callable[[P], str],
    find: Callable[[P], RuleAnswer],
) -> Check:
    """Make the check of a rule that finds something in the time that it chooses if that is at least this
    share of the step window, and says how much it is if it is less."""

    def look(facts: Facts, claimed: Claimed) -> RuleAnswer:
        part = choose(facts, claimed)
        return find(part) if part.share >= least_share else Clear(too_little(part))

    return look


ERROR_SHARE = 0.30
"""From here on the GPU could do half as much again in the same time: an error."""

# A recording in which less time is lost is a step or two of a toy, or a test of the profiler: an interrupt or
# a change of clocks takes as long, and nobody would stop a job for it.
LEAST_ERROR_NS = 10_000_000


@dataclass(frozen=True)
class AnyRule:
    """A rule on one trace or on a job. `id` is never reused; `name` names the module, its page and its tests.

    A finding has the rule's `severity`, or ERROR if it costs at least `error_share` of the step window, and
    LEAST_ERROR_NS.
    """

    id: str
    name: str
    title: str
    severity: Severity = field(default=Severity.WARNING, kw_only=True)
    error_share: float | None = field(default=None, kw_only=True)
    topic: Topic = field(default="", kw_only=True)

    def severity_of(self, finding: Finding, window_ns: int) -> Severity:
        """Return the finding's own severity if it has one, else the policy's for its cost."""
        if finding.severity is not None:
            return finding.severity
        if self.error_share is not None and finding.cost_ns >= max(
            self.error_share * window_ns, LEAST_ERROR_NS
        ):
            return Severity.ERROR
        return self.severity

    @property
    def family(self) -> str:
        """What the rule is about; the folder of rules/ that holds it."""
        return family_of(self.id)

    @property
    def kind_of_fix(self) -> str:
        """By which fixes that were measured are told apart (given_back.py)."""
        return self.topic or self.family

    @property
    def package(self) -> str:
        """The package that holds the rule's module and its page."""
        raise NotImplementedError

    @property
    def page(self) -> str:
        """The rule's page: Markdown with the headings of PAGE_HEADINGS, without names of code blocks."""
        text = (resources.files(self.package) / f"{self.name}.md").read_text(encoding="utf-8")
        return re.sub(r"^(```\w+) \w+( \+ \w+)?$", r"\1", text, flags=re.MULTILINE)


@dataclass(frozen=True)
class Rule(AnyRule):
    """A rule on one trace.

    about: the kinds of files that it applies to. look: its check, which is asked where its needs are there.
    on_cpu, unseen: another one, for jobs that compute on a CPU, and for those on a GPU whose work the trace
    lacks; None if that is the same.
    """

    look: Check
    about: frozenset[FileKind] = field(default=TRACES, kw_only=True)
    needs: Sequence[Need] = field(default=(), kw_only=True)
    on_cpu: Check | None = field(default=None, kw_only=True)
    unseen: Check | None = field(default=None, kw_only=True)

    def check(self, facts: Facts, claimed: Claimed = NOTHING_CLAIMED) -> RuleAnswer:
        """Answer by the facts, or say what the trace lacks."""
        other = {"cpu": self.on_cpu, "unseen": self.unseen}.get(facts.computes_on)
        if other is not None:
            return other(facts, claimed)
        lacks = (need.lack(facts) for need in self.needs if not need.there(facts))
        return next(lacks, None) or self.look(facts, claimed)

    @property
    def package(self) -> str:
        return f"tb_gpudiag.rules.{self.family}"


def _no_gpu(facts: Facts, _claimed: Claimed) -> RuleAnswer:
    return no_gpu(facts)


@dataclass(frozen=True)
class GpuRule(Rule):
    """A rule that needs the work of a GPU, if it has no other check."""

    on_cpu: Check | None = field(default=_no_gpu, kw_only=True)
    unseen: Check | None = field(default=_no_gpu, kw_only=True)


PAGE_HEADINGS = ("What it means", "How it is measured", "Threshold", "When not to act", "Fix", "Known limits")

# A named block of code on a rule's page, and what to do with it: the words and the code of a fix stand there
# alone. A block may go on with others of the page: "```python first + second".
_BLOCK = lazy_re(
    r"^(?:\*\*(?P<text>[^*]+)\*\*(?:\s\(\[more\]\((?P<url>\S+)\)\))?\n\n)?"
    r"```\w+ (?P<name>\w+)(?: \+ (?P<next>\w+))?\n(?P<code>.*?)\n```$",
    re.MULTILINE | re.DOTALL,
)


def fix_code(module: str) -> dict[str, str]:
    """Return the named blocks of code, such as "```python workers", on the page next to a rule's module."""
    blocks = _blocks(module)
    code = {block["name"]: block["code"] for block in blocks}
    joined = {block["name"]: f"{block['code']}\n\n{code[block['next']]}" for block in blocks if block["next"]}
    return code | joined


def page_fixes(module: str) -> dict[str, Fix]:
    """Return the fixes on the page next to a rule's module, by the names of their blocks of code: those with
    bold words before the block, and with the address after these."""
    code = fix_code(module)
    return {
        block["name"]: Fix(block["text"].replace("\n", " "), code[block["name"]], block["url"] or "")
        for block in _blocks(module)
        if block["text"]
    }


@lru_cache
def _blocks(module: str) -> list[re.Match[str]]:
    package, _, name = module.rpartition(".")
    page = (resources.files(package) / f"{name}.md").read_text(encoding="utf-8")
    return list(_BLOCK.finditer(page))
