import { codePlace, count, time } from "../../base/format";
import type { CapturedGraphs } from "../../wire/report";
import { shapesText } from "../operators/names";
import { More } from "../parts/More";
import { NumberTitle } from "../parts/NumberTitle";
import { Section } from "../parts/Section";

const FIRST = 10;

/** Kernels in CUDA and HIP graphs, by the operators that were captured. */
export function GraphKernels({ graphs }: { graphs: CapturedGraphs | undefined }) {
  if (!graphs) return null;
  return (
    <Section title="Kernels in graphs">
      <p className="gd-nothing">{graphs.sentence}</p>
      {graphs.matched > 0 && (
        <More items={graphs.nodes} first={FIRST}>
          {(shown) => (
            <div className="gd-wide-plain" role="group" aria-label="Kernels in graphs" tabIndex={0}>
              <table className="gd-table gd-launches" aria-label="Kernels in graphs">
                <thead>
                  <tr>
                    <th scope="col">Operator</th>
                    <th scope="col">Module</th>
                    <th scope="col">Kernel</th>
                    <NumberTitle column="kernels" />
                    <NumberTitle column="kernel_time" />
                  </tr>
                </thead>
                <tbody>
                  {shown.map((node, at) => (
                    <tr key={at}>
                      <td className="gd-name" title={node.place && codePlace(node.place)}>
                        <span className="gd-two">
                          <b>{node.operator}</b>
                          <span>{shapesText(node.shapes)}</span>
                        </span>
                      </td>
                      <td className="gd-name gd-mono">{node.module}</td>
                      <td className="gd-name gd-mono" title={node.kernel}>
                        {node.kernel}
                      </td>
                      <td className="gd-number">{count(node.kernels)}</td>
                      <td className="gd-number">{time(node.us)}</td>
                    </tr>
                  ))}
                </tbody>
              </table>
            </div>
          )}
        </More>
      )}
    </Section>
  );
}
