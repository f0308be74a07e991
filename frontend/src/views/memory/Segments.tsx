import { bytes, count, percent } from "../../base/format";
import type { DeviceMemory } from "../../wire/report";
import { NumberTitle } from "../parts/NumberTitle";
import { More } from "../parts/More";

const FIRST = 6;

/** The segments of a memory snapshot, which the driver allocates as one piece each, and how much of each is used. */
export function Segments({ memory: { segments } }: { memory: DeviceMemory }) {
  if (segments.length === 0) return null;
  return (
    <section aria-label="Segments">
      <h3>Segments</h3>
      <More items={segments} first={FIRST}>
        {(shown) => (
          <table className="gd-table gd-memory-sites">
            <thead>
              <tr>
                <th scope="col">Address</th>
                <th scope="col" className="gd-number">
                  Size
                </th>
                <th scope="col" className="gd-number">
                  Used
                </th>
                <NumberTitle column="largest_free" />
                <th scope="col" className="gd-number">
                  Blocks
                </th>
              </tr>
            </thead>
            <tbody>
              {shown.map((segment, at) => (
                <tr key={at}>
                  <td>
                    <code>{segment.address}</code>
                    {segment.expandable && <span className="gd-muted"> expandable</span>}
                  </td>
                  <td className="gd-number">{bytes(segment.bytes)}</td>
                  <td className="gd-number" title={bytes(segment.used_bytes)}>
                    {percent(segment.used_bytes, segment.bytes)}
                  </td>
                  <td className="gd-number">{bytes(segment.largest_free_bytes)}</td>
                  <td className="gd-number">{count(segment.blocks)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        )}
      </More>
    </section>
  );
}
