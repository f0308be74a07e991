import { count } from "../../base/format";
import { curveValue } from "../../canvas/queue";
import type { Counter } from "../../wire/report";
import { Section } from "../parts/Section";

/** The counters of the trace, such as clocks and power, with their range of values. */
export function Counters({ counters }: { counters: readonly Counter[] }) {
  if (counters.length === 0) return null;
  return (
    <Section title="Counters">
      <p className="gd-nothing">The timeline shows each counter as a curve below the lanes of its GPU.</p>
      <table className="gd-plain gd-recording">
        <thead>
          <tr>
            <th scope="col">Counter</th>
            <th scope="col">Device</th>
            <th scope="col">Samples</th>
            <th scope="col">Min</th>
            <th scope="col">Mean</th>
            <th scope="col">Max</th>
          </tr>
        </thead>
        <tbody>
          {counters.map((counter, at) => (
            <tr key={at}>
              <th scope="row">{counter.name}</th>
              <td>{counter.device < 0 ? "" : `GPU ${counter.device}`}</td>
              <td>
                {count(counter.samples)}
                {!counter.timed && " ranges, without times"}
              </td>
              {[counter.least, counter.mean, counter.most].map((value, place) => (
                <td key={place}>{curveValue("counter", value, counter.unit)}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </Section>
  );
}
