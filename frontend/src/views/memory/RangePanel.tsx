import { bytes, count, plural } from "../../base/format";
import { sameSite, where } from "../../state/memory";
import { isEmbedded } from "../../wire/client";
import type { MemoryOwner, MemorySlice, SliceSite } from "../../wire/report";
import { Cut } from "../parts/Cut";
import { ShortTable, type ShortColumn } from "../parts/ShortTable";

interface Props {
  readonly title: string;
  readonly slice: MemorySlice | null;
  /** True for the whole recording, where "live after range" and "still live at end" are the same. */
  readonly whole: boolean;
  /** The owner whose allocations to highlight and show first. */
  readonly picked: MemoryOwner | null;
}

const FIRST = 8;

/** What was allocated and freed in a range, and what stays allocated. */
export function RangePanel({ title, slice, whole, picked }: Props) {
  const isPicked = (site: SliceSite) => picked !== null && sameSite(site, picked);
  const sites = slice ? [...slice.sites].sort((a, b) => Number(isPicked(b)) - Number(isPicked(a))) : [];
  const known = slice !== null && slice.survived_bytes >= 0;
  return (
    <section className="gd-memory-range" aria-label="Allocations in the range" aria-live="polite">
      <h3>{title}</h3>
      {slice ? (
        <Sums slice={slice} whole={whole} />
      ) : (
        <p className="gd-muted">
          {isEmbedded() ? "This file does not include the allocations of a range." : "Loading…"}
        </p>
      )}
      {slice && !known && (
        <p className="gd-muted">
          This recording has no addresses, so it does not show which allocations stay live.
        </p>
      )}
      {sites.length > 0 && (
        <ShortTable
          key={title}
          className="gd-table gd-memory-sites"
          columns={columns(known, known && !whole)}
          rows={sites}
          first={FIRST}
          isMarked={isPicked}
        />
      )}
    </section>
  );
}

function Sums({ slice, whole }: { slice: MemorySlice; whole: boolean }) {
  const rows: readonly (readonly [string, number, string])[] = [
    ["Allocated", slice.allocated_bytes, plural(slice.allocations, "time")],
    ["Freed", slice.freed_bytes, plural(slice.frees, "time")],
    ["Live after range", whole ? -1 : slice.survived_bytes, plural(slice.survivors, "allocation")],
    ["Still live at end", slice.kept_bytes, ""],
  ];
  return (
    <dl className="gd-facts">
      {rows
        .filter(([, size]) => size >= 0)
        .map(([name, size, note]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{bytes(size)}</dd>
            <dd className="gd-muted">{note}</dd>
          </div>
        ))}
    </dl>
  );
}

/** known: the recording shows which allocations stay live. after: and the range ends before it does. */
const columns = (known: boolean, after: boolean): readonly ShortColumn<SliceSite>[] => [
  {
    title: "Allocated by",
    className: "gd-name",
    cell: ({ operator, place }) => <Site operator={operator} line={where(place)} />,
  },
  { title: "Count", className: "gd-number", cell: ({ allocations }) => count(allocations) },
  { title: "Allocated", className: "gd-number", cell: ({ allocated_bytes }) => bytes(allocated_bytes) },
  ...(after ? [{ figure: "live_after_range", cell: (site: SliceSite) => size(site.survived_bytes) }] : []),
  ...(known ? [{ figure: "still_live", cell: (site: SliceSite) => size(site.kept_bytes) }] : []),
];

const size = (kept: number) => (kept > 0 ? bytes(kept) : "");

/** An operator and its line. Tooltips show the full text. */
export function Site({ operator, line }: { operator: string; line: string }) {
  if (!operator && !line) return <span className="gd-muted">unknown</span>;
  return (
    <>
      {operator && <span title={operator}>{operator}</span>}
      {line && (
        <code className="gd-muted" title={line}>
          <Cut text={line} isPath />
        </code>
      )}
    </>
  );
}
