import { count, percent, time } from "../../base/format";
import type { ModuleTime, Report } from "../../wire/report";
import { Section } from "../parts/Section";
import { ShortTable, type ShortColumn } from "../parts/ShortTable";

const FIRST = 10;

const FIGURES: readonly ShortColumn<ModuleTime>[] = [
  { figure: "modules", cell: ({ module, modules }) => (module ? count(modules) : "") },
  { figure: "kernels", cell: ({ kernels }) => count(kernels) },
  { figure: "kernel_time", cell: ({ us }) => time(us) },
  { figure: "module_share", cell: ({ share }) => percent(share) },
];

/** GPU time by the module that it is spent for, in CUDA graphs as well. */
export function Modules({ report: { modules, devices } }: { report: Report }) {
  if (modules.length === 0) return null;
  const name: ShortColumn<ModuleTime> = {
    title: "Module",
    className: "gd-name",
    cell: ({ device, module }) => (
      <>
        {devices.length > 1 && `GPU ${device}: `}
        {module ? <code>{module}</code> : "(no module)"}
      </>
    ),
  };
  return (
    <Section
      title="GPU time by module"
      aside={<span className="gd-muted">* stands for any number: layers of one kind are one row</span>}
    >
      <ShortTable
        className="gd-table gd-launches"
        columns={[name, ...FIGURES]}
        rows={modules}
        first={FIRST}
      />
    </Section>
  );
}
