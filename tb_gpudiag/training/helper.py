"""The helper process of a training job, which diagnoses recordings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Final

from tb_gpudiag.errors import GpudiagError
from tb_gpudiag.frozen import dataclass
from tb_gpudiag.service.processes import process_setup
from tb_gpudiag.service.processes.child import Child, ChildEnded, ChildMessage

NICE = process_setup.NICE

# Libraries lose a little memory with each file.
RENEW_AFTER: Final = 200


@dataclass(frozen=True)
class HelperAnswer:
    """The outcome of a request.

    text: for the log: the verdict, or why there is none.
    found: there is a finding that is worth a look.
    report, record: serialized Reports, whole and compact, if they were asked for.
    figures: by tag, for the event file.
    note: what went wrong without preventing the diagnosis.
    """

    ok: bool
    text: str
    found: bool = False
    report: bytes = b""
    record: bytes = b""
    figures: Mapping[str, float] = field(default_factory=dict)
    note: str = ""

    def message(self) -> ChildMessage:
        """Return the message for an answer that is ok."""
        fields = {
            "text": self.text,
            "found": self.found,
            "figures": dict(self.figures),
            "note": self.note,
            "report_bytes": len(self.report),
        }
        return ChildMessage(fields, self.report + self.record)

    @classmethod
    def of(cls, message: ChildMessage) -> HelperAnswer:
        fields, content = message.fields, message.content
        report, record = content[: fields["report_bytes"]], content[fields["report_bytes"] :]
        return cls(True, fields["text"], fields["found"], report, record, fields["figures"], fields["note"])


class Helper:
    """A process of low priority that is started when it is needed. It never imports torch, so it has no CUDA
    context.

    At the lowest priority it would starve beside a job that uses all cores: it gets a tenth of a busy core.
    One thread calls `ask` and `stop`. Linux ends the process when that thread ends. module: see Child.
    """

    def __init__(self, module: str) -> None:
        self._module = module
        self._child = Child(module, nice=NICE)
        self._hurried = self._hurries = False
        self._asked = 0

    def ask(self, request: dict[str, Any], time_limit_s: float) -> HelperAnswer:
        """Send a request and wait for the answer. Raises nothing: a failed process is an answer, too."""
        if self._asked >= RENEW_AFTER:
            self._child.stop()
            self._asked = 0
        if self._hurried and not self._hurries:
            self._child.stop()
            self._child, self._hurries = Child(self._module, nice=0), True
        self._asked += 1
        try:
            return HelperAnswer.of(self._child.ask(request, time_limit_s))
        except GpudiagError as error:
            return HelperAnswer(False, error.what)
        except TimeoutError:
            return HelperAnswer(False, f"the helper process took over {time_limit_s:g} s")
        except ChildEnded as ended:
            if self._hurried and not self._hurries:
                return self.ask(request, time_limit_s)
            return HelperAnswer(False, f"the helper process ended ({ended})")

    def hurry(self) -> None:
        """Go on at normal priority, until `stop`: the training is over, and waits. From any thread."""
        if not self._hurried:
            self._hurried = True
            self._child.kill()

    def kill(self) -> None:
        """End the process at once, from any thread."""
        self._child.kill()

    def stop(self) -> None:
        """End the process."""
        self._asked = 0
        self._child.stop()
        if self._hurries:
            self._child = Child(self._module, nice=NICE)
        self._hurried = self._hurries = False

    def forget(self) -> None:
        """After a fork: leave the process to the parent."""
        self._asked = 0
        self._child.forget()
