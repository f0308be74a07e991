import { bytes, count, plural } from "../../base/format";
import { sameSite, where } from "../../state/memory";
import { isEmbedded } from "../../wire/client";
import type { MemoryOwner, MemorySlice, SliceSite } from "../../wire/report";
import { Cut } from "../parts/Cut";
import { NumberTitle } from "../parts/NumberTitle";
import { More } from "../parts/More";

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
        <More key={title} items={sites} first={FIRST}>
          {(shown) => (
            <table className="gd-table gd-memory-sites">
              <thead>
                <tr>
                  <th scope="col">Allocated by</th>
                  <th scope="col" className="gd-number">
                    Count
                  </th>
                  <th scope="col" className="gd-number">
                    Allocated
                  </th>
                  {known && !whole && <NumberTitle column="live_after_range" />}
                  {known && <NumberTitle column="still_live" />}
                </tr>
              </thead>
              <tbody>
                {shown.map((site, at) => (
                  <SiteRow key={at} site={site} known={known} whole={whole} picked={isPicked(site)} />
                ))}
              </tbody>
            </table>
          )}
        </More>
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

interface SiteProps {
  readonly site: SliceSite;
  /** True if the recording shows which allocations stay live. */
  readonly known: boolean;
  readonly whole: boolean;
  readonly picked: boolean;
}

function SiteRow({ site, known, whole, picked }: SiteProps) {
  return (
    <tr data-shown={picked || undefined}>
      <td className="gd-name">
        <Site operator={site.operator} line={where(site.place)} />
      </td>
      <td className="gd-number">{count(site.allocations)}</td>
      <td className="gd-number">{bytes(site.allocated_bytes)}</td>
      {known && !whole && (
        <td className="gd-number">{site.survived_bytes > 0 ? bytes(site.survived_bytes) : ""}</td>
      )}
      {known && <td className="gd-number">{site.kept_bytes > 0 ? bytes(site.kept_bytes) : ""}</td>}
    </tr>
  );
}

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
