import { count, percent, time } from "../../base/format";
import { FAMILIES } from "../../base/vocabulary";
import type { KernelFamily, Report } from "../../wire/report";
import { Section } from "../parts/Section";
import { ShortTable, type ShortColumn } from "../parts/ShortTable";

const FIRST = 10;

const FIGURES: readonly ShortColumn<KernelFamily>[] = [
  { figure: "kernels", cell: ({ kernels }) => count(kernels) },
  { figure: "kernel_time", cell: ({ us }) => time(us) },
  { figure: "kernel_share", cell: ({ share }) => percent(share) },
  {
    figure: "tensor_cores",
    cell: ({ tensor_core_us, us }) => (tensor_core_us > 0 ? percent(tensor_core_us, us) : ""),
  },
];

/** GPU time by family of kernels. */
export function Kernels({ report }: { report: Report }) {
  if (report.kernel_families.length === 0) return null;
  const several = report.devices.length > 1;
  const name: ShortColumn<KernelFamily> = {
    title: "Family",
    className: "gd-name",
    tip: ({ family }) => FAMILIES[family].explanation,
    cell: ({ device, family }) => `${several ? `GPU ${device}: ` : ""}${FAMILIES[family].word}`,
  };
  return (
    <Section
      title="GPU time by kernel family"
      about="kernel family"
      aside={<span className="gd-muted">by kernel name; families can overlap in time</span>}
    >
      <ShortTable
        className="gd-table gd-launches"
        columns={[name, ...FIGURES]}
        rows={report.kernel_families}
        first={FIRST}
        linked
      />
    </Section>
  );
}
