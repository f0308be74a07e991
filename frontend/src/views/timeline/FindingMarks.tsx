import { memo } from "react";
import { toPixel, type Viewport } from "../../base/viewport";
import { findingKeys } from "../../state/findings";
import { usePage } from "../../state/store";
import type { Finding } from "../../wire/report";

interface Props {
  readonly findings: readonly Finding[];
  readonly onEvidence: (ranges: readonly Viewport[] | null) => void;
  readonly bounds: Viewport;
  readonly width: number;
}

/** The findings that cost most, with the longest ranges of each. */
const MOST_FINDINGS = 8;
const MOST_RANGES = 5;

/**
 * Marks of findings above the minimap: the pointer on one dims what is not its evidence, a click shows the place. The
 * summary has all of them, for the keyboard too.
 */
export const FindingMarks = memo(function FindingMarks({ findings, onEvidence, bounds, width }: Props) {
  if (width === 0) return null;
  const keys = findingKeys(findings);
  return findings.slice(0, MOST_FINDINGS).flatMap((finding, at) =>
    finding.ranges.slice(0, MOST_RANGES).map((range, place) => (
      <button
        key={`${keys[at] ?? at}/${place}`}
        type="button"
        tabIndex={-1}
        className="gd-minimap-mark"
        data-severity={finding.severity}
        style={{ left: toPixel(bounds, (range.start_us + range.end_us) / 2, width) }}
        title={`${finding.rule} ${finding.title}`}
        aria-label={`Show on the timeline: ${finding.title}, place ${place + 1}`}
        onPointerEnter={() => onEvidence(finding.ranges)}
        onPointerLeave={() => onEvidence(null)}
        onClick={() => {
          onEvidence(null);
          usePage.getState().show({ row: `finding.${keys[at] ?? at}`, place }, range, "timeline");
        }}
      />
    )),
  );
});
