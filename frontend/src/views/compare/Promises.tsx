import { time, timeBeside, words } from "../../base/format";
import { signedTime } from "../../state/comparison";
import { between } from "../../state/gain";
import type { Verified } from "../../wire/report";
import { Section } from "../parts/Section";
import { ShortTable, type ShortColumn } from "../parts/ShortTable";
import { ExplainButton } from "../rule/ExplainButton";

const estimateWas: Record<Verified["promise"], string> = {
  INSIDE: "right",
  BELOW: "too high",
  ABOVE: "too low",
  CANNOT_TELL: "cannot tell",
  NONE: "",
};

const COLUMNS: readonly ShortColumn<Verified>[] = [
  {
    title: "Finding",
    heads: true,
    cell: ({ rule, name }) => (
      <>
        <ExplainButton rule={rule} /> {words(name)}
      </>
    ),
  },
  {
    title: "Estimated",
    className: "gd-number",
    cell: ({ low_us, likely_us, high_us }) => {
      const range = between(timeBeside(low_us, high_us), time(high_us));
      return likely_us > 0 ? `${timeBeside(likely_us, high_us)} (${range})` : range;
    },
  },
  { title: "Measured", className: "gd-number", cell: measured },
  { title: "The estimate was", cell: ({ promise }) => estimateWas[promise] },
];

/** What a fix was estimated to save, next to what it saved. */
export function Promises({ verified }: { verified: readonly Verified[] }) {
  const made = verified.filter(({ promise }) => promise !== "NONE");
  if (made.length === 0) return null;
  return (
    <Section
      title="Estimated and measured savings"
      aside={<span className="gd-muted">per step; measured is the effect of all changes together</span>}
    >
      <ShortTable
        className="gd-plain"
        columns={COLUMNS}
        rows={made}
        rowTip={({ sentence }) => sentence}
        box="Estimated and measured savings"
      />
    </Section>
  );
}

function measured({ real_us, real_low_us, real_high_us }: Verified): string {
  if (real_low_us === real_high_us) return "";
  return real_us < 0 ? `${signedTime(-real_us)} slower` : time(real_us);
}
