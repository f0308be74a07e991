"""Diagnose a trace for a command, or take what others know of it: see service/caches/reuse.py."""

from __future__ import annotations

import os
from functools import partial

from tb_gpudiag.cli.output import tell
from tb_gpudiag.digest.digested import digest_file
from tb_gpudiag.errors import GpudiagError
from tb_gpudiag.report.diagnosis import Progress
from tb_gpudiag.service.analyses.diagnoses import Diagnosis, diagnose_whole
from tb_gpudiag.service.analyses.task import EntryContent
from tb_gpudiag.service.caches.claims import claim_of, known_or_claimed
from tb_gpudiag.service.caches.reuse import Marker, has_sidecar, known_diagnosis, share, write_sidecar
from tb_gpudiag.service.caches.shared_cache import SharedCache
from tb_gpudiag.service.settings import settings_from
from tb_gpudiag.trace.files.find import TraceFile


class TraceReader:
    """Diagnoses traces, and shares the results if the user wants that.

    prepare: also return what an interactive page needs. sidecars: write each result next to its trace.
    """

    def __init__(self, *, prepare: bool, sidecars: bool) -> None:
        self.prepare = prepare
        self._sidecars = sidecars
        self._shared = SharedCache.of(settings_from())
        self._told = False
        self.errors: list[GpudiagError] = []  # of sidecars that cannot be written

    def read(self, file: TraceFile, progress: Progress) -> Diagnosis:
        """Return the diagnosis of a trace.

        Raises:
            TraceError: the file cannot be read.
        """
        claim = claim_of("diagnose", file, self._shared)
        known = known_or_claimed(partial(known_diagnosis, file, self._shared), claim, progress)
        if known is not None:
            tell(f"{os.path.basename(file.path)}: result of {known.origin}")
            if self._sidecars and not has_sidecar(file):
                self._write_sidecar(file, Marker(file).marked(known.result(), "diagnose"))
            return known
        if self._shared is None and not self._sidecars and not self.prepare:
            report, digest = digest_file(file, progress)
            return Diagnosis(report, digest, {})
        try:
            return self._analyzed(file, progress)
        finally:
            if claim is not None:
                claim.release()

    def _analyzed(self, file: TraceFile, progress: Progress) -> Diagnosis:
        marker = Marker(file)
        found = diagnose_whole(file, progress)
        if found.is_final and (self._shared is not None or self._sidecars):
            result = marker.marked(found.result(), "diagnose")
            if self._shared is not None:
                share(result, self._shared)
                self._tell_note(self._shared.note)
            if self._sidecars:
                self._write_sidecar(file, result)
        return found

    def _write_sidecar(self, file: TraceFile, result: EntryContent) -> None:
        try:
            write_sidecar(file, result)
        except GpudiagError as error:
            self.errors.append(error)

    def _tell_note(self, note: str) -> None:
        if note and not self._told:
            self._told = True
            tell(note)
