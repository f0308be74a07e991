import { count, percent, time } from "../../base/format";
import { FAMILIES } from "../../base/vocabulary";
import type { KernelFamily, Report } from "../../wire/report";
import { NumberTitle } from "../parts/NumberTitle";
import { More } from "../parts/More";
import { Section } from "../parts/Section";
import { LinkedRow, ShowTitle } from "../parts/ShowOnTimeline";

const FIRST = 10;

/** GPU time by family of kernels. */
export function Kernels({ report }: { report: Report }) {
  if (report.kernel_families.length === 0) return null;
  const several = report.devices.length > 1;
  return (
    <Section
      title="GPU time by kernel family"
      about="kernel family"
      aside={<span className="gd-muted">by kernel name; families can overlap in time</span>}
    >
      <More items={report.kernel_families} first={FIRST}>
        {(shown) => (
          <table className="gd-table gd-launches">
            <thead>
              <tr>
                <th scope="col">Family</th>
                <NumberTitle column="kernels" />
                <NumberTitle column="kernel_time" />
                <NumberTitle column="kernel_share" />
                <NumberTitle column="tensor_cores" />
                <ShowTitle />
              </tr>
            </thead>
            <tbody>
              {shown.map((item) => (
                <FamilyRow key={`${item.device}/${item.family}`} item={item} several={several} />
              ))}
            </tbody>
          </table>
        )}
      </More>
    </Section>
  );
}

function FamilyRow({ item, several }: { item: KernelFamily; several: boolean }) {
  const { word: name, explanation } = FAMILIES[item.family];
  return (
    <LinkedRow of={item}>
      <td className="gd-name" title={explanation}>
        {several ? `GPU ${item.device}: ${name}` : name}
      </td>
      <td className="gd-number">{count(item.kernels)}</td>
      <td className="gd-number">{time(item.us)}</td>
      <td className="gd-number">{percent(item.share)}</td>
      <td className="gd-number">{item.tensor_core_us > 0 ? percent(item.tensor_core_us, item.us) : ""}</td>
    </LinkedRow>
  );
}
