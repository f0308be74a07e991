import { cause } from "../../base/causes";
import { count, exactTime, plural, time } from "../../base/format";
import { functionFirst } from "../../base/names";
import { curveValue } from "../../canvas/queue";
import type { Row } from "../../canvas/rows";
import { kindLabel } from "../../canvas/theme";
import { CauseSwatch } from "../parts/CauseSwatch";
import type { Hover } from "./usePointer";

interface Props {
  readonly hover: Hover;
  readonly width: number;
  readonly height: number;
}

const CARD_PX = 330;
const AWAY_PX = 14;

/** "3 launches queued", or a range if the depth changes faster than the screen can show. */
function queuedText([least, most]: readonly [number, number]): string {
  if (least === most) return `${plural(most, "launch", "launches")} queued`;
  return `${count(least)} to ${count(most)} launches queued`;
}

/** What a curve says at this time. */
function curveText({ kind, unit }: Row, [least, most]: readonly [number, number]): string {
  if (kind === "queue") return queuedText([least, most]);
  const values = [...new Set([least, most])].map((value) => curveValue(kind, value, unit));
  return values.join(" to ") + (kind === "memory" ? " allocated" : "");
}

/** The exact figures of what is under the pointer. */
export function HoverCard({ hover: { hit, x, y }, width, height }: Props) {
  const isGap = hit.row.kind === "gaps";
  const left = x + AWAY_PX + CARD_PX > width ? Math.max(0, x - AWAY_PX - CARD_PX) : x + AWAY_PX;
  const vertical = y > height / 2 ? { bottom: height - y + AWAY_PX } : { top: y + AWAY_PX };
  return (
    <div className="gd-hover" style={{ left, maxWidth: CARD_PX, ...vertical }} role="tooltip">
      <b>
        {isGap && <CauseSwatch name={hit.name} />}
        {isGap ? cause(hit.name).word : hit.queued ? curveText(hit.row, hit.queued) : functionFirst(hit.name)}
      </b>
      {hit.count > 1 && (
        <p>
          {isGap
            ? `${count(hit.count)} short gaps, merged, with work between them.`
            : `${count(hit.count)} short events, merged.`}{" "}
          Click to zoom in.
        </p>
      )}
      {isGap && <p>{cause(hit.name).explanation}</p>}
      <dl>
        <dt>Duration</dt>
        <dd>
          {time(hit.end_us - hit.start_us)} <span>({exactTime(hit.end_us - hit.start_us)})</span>
        </dd>
        <dt>Start</dt>
        <dd>{exactTime(hit.start_us)}</dd>
        <dt>{hit.queued ? "Curve" : isGap ? "Device" : "Kind"}</dt>
        <dd>{isGap || hit.queued ? hit.row.title : kindLabel(hit.kind)}</dd>
      </dl>
      {hit.gap !== null && <p>Click to see what caused this gap.</p>}
    </div>
  );
}
