import { bytes } from "../../base/format";
import { word } from "../../base/terms";
import { MEMORY_FIGURES } from "../../base/vocabulary";
import { signedBytes } from "../../state/comparison";
import type { MemoryDifference } from "../../wire/report";
import { Section } from "../parts/Section";

export function MemoryDifferences({ items }: { items: readonly MemoryDifference[] }) {
  if (items.length === 0) return null;
  return (
    <Section title="Memory">
      <div className="gd-wide-plain" role="group" aria-label="Memory" tabIndex={0}>
        <table className="gd-plain">
          <thead>
            <tr>
              <th scope="col">Device</th>
              <th scope="col">What</th>
              <th scope="col" className="gd-number">
                Base
              </th>
              <th scope="col" className="gd-number">
                Candidate
              </th>
              <th scope="col" className="gd-number">
                Difference
              </th>
            </tr>
          </thead>
          <tbody>
            {items.map(({ device, what, base_bytes, candidate_bytes }, at) => (
              <tr key={at}>
                <th scope="row">{device}</th>
                <td>{word(MEMORY_FIGURES, what)}</td>
                <td className="gd-number">{bytes(base_bytes)}</td>
                <td className="gd-number">{bytes(candidate_bytes)}</td>
                <td className="gd-number">{signedBytes(candidate_bytes - base_bytes)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Section>
  );
}
