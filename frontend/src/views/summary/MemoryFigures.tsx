import { bytes } from "../../base/format";
import { memoryLabel } from "../../state/memory";
import { usePage } from "../../state/store";
import type { Report } from "../../wire/report";
import { Section } from "../parts/Section";

interface Props {
  readonly report: Report;
  /** Whether there is a memory view. */
  readonly linked: boolean;
}

/** The memory of each device, and the way to the memory view. */
export function MemoryFigures({ report, linked }: Props) {
  const showMemoryOf = usePage((page) => page.showMemoryOf);
  if (report.memory.length === 0) return null;
  return (
    <Section title="Memory at its peak">
      <table className="gd-plain">
        <thead>
          <tr>
            <th scope="col">Device</th>
            <th scope="col" className="gd-number">
              Allocated
            </th>
            <th scope="col" className="gd-number">
              Reserved
            </th>
            {linked && (
              <th scope="col">
                <span className="gd-unseen">Memory view</span>
              </th>
            )}
          </tr>
        </thead>
        <tbody>
          {report.memory.map((memory) => (
            <tr key={memory.device}>
              <th scope="row">{memoryLabel(memory)}</th>
              <td className="gd-number">{bytes(memory.peak_allocated_bytes)}</td>
              <td className="gd-number">
                {memory.peak_reserved_bytes > 0 ? bytes(memory.peak_reserved_bytes) : ""}
              </td>
              {linked && (
                <td className="gd-number">
                  <button
                    type="button"
                    className="gd-link"
                    aria-label={`Show the memory of ${memoryLabel(memory)}`}
                    onClick={() => showMemoryOf(memory.device)}
                  >
                    Show
                  </button>
                </td>
              )}
            </tr>
          ))}
        </tbody>
      </table>
    </Section>
  );
}
