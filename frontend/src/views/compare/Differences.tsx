import { withoutArguments } from "../../base/names";
import { useMediaQuery } from "@mantine/hooks";
import { useState } from "react";
import { plural, time } from "../../base/format";
import type { Order } from "../../base/sorting";
import { term, word } from "../../base/terms";
import { FAMILIES } from "../../base/vocabulary";
import { countText, difference, signedTime } from "../../state/comparison";
import type { OperatorDifference } from "../../wire/report";
import { Cut } from "../parts/Cut";
import { DataTable, type Column } from "../parts/DataTable";
import { figure } from "../parts/figure";
import { Section } from "../parts/Section";

interface Props {
  /** "Operators" or "Kernels". */
  readonly title: string;
  readonly items: readonly OperatorDifference[];
}

const FIGURES: readonly Column<OperatorDifference>[] = [
  {
    id: "count",
    title: "Per step",
    about: "Count per step: base → candidate",
    width: 120,
    figures: true,
    value: ({ base_count, candidate_count }) => candidate_count - base_count,
    fileTitle: "Difference per step",
    cell: ({ base_count, candidate_count }) => `${countText(base_count)} → ${countText(candidate_count)}`,
  },
  {
    id: "base_count",
    title: "Base per step",
    saved: true,
    value: ({ base_count }) => base_count,
    cell: () => null,
  },
  {
    id: "candidate_count",
    title: "Candidate per step",
    saved: true,
    value: ({ candidate_count }) => candidate_count,
    cell: () => null,
  },
  figure("base", "Base", 96, ({ base_us }) => base_us, time),
  figure("candidate", "Candidate", 96, ({ candidate_us }) => candidate_us, time),
  {
    id: "difference",
    title: "Difference",
    unit: "µs",
    about: "Sorts by absolute value",
    width: 106,
    figures: true,
    value: (item) => Math.abs(difference(item)),
    fileValue: difference,
    cell: (item) => signedTime(difference(item)),
  },
];

const NAME: Column<OperatorDifference> = {
  id: "name",
  title: "Name",
  value: ({ name, candidate_name }) => name || candidate_name,
  cell: (item) => <Name item={item} />,
};

const FAMILY: Column<OperatorDifference> = {
  id: "family",
  title: "Family",
  width: 130,
  value: ({ family }) => word(FAMILIES, family),
  cell: ({ family }) => word(FAMILIES, family),
};

/** What a phone has room for. */
const ON_PHONE: ReadonlySet<string> = new Set(["name", "difference"]);

/** Operators or kernels that take longer or shorter. Renamed ones are matched. */
export function Differences({ title, items }: Props) {
  const [order, setOrder] = useState<Order>({ by: "difference", descending: true });
  const phone = useMediaQuery("(max-width: 640px)");
  if (items.length === 0) return null;
  const families = items.some(({ family }) => term(FAMILIES, family) !== undefined);
  const columns = [NAME, ...(families ? [FAMILY] : []), ...FIGURES];
  return (
    <Section
      title={title}
      aside={<span className="gd-muted">{plural(items.length, "row")}, largest difference first</span>}
    >
      <DataTable
        label={title}
        columns={
          phone
            ? columns.map((column) => (ON_PHONE.has(column.id) ? column : { ...column, saved: true }))
            : columns
        }
        rows={items}
        rowKey={({ name, candidate_name, path }) => [name, candidate_name, path].join("\n")}
        order={order}
        onOrder={setOrder}
        maxHeight="330px"
        minWidth={phone ? 0 : 760}
      />
    </Section>
  );
}

function Name({ item: { name, candidate_name: renamed, path } }: { item: OperatorDifference }) {
  return (
    <code title={[path, name, renamed && `candidate: ${renamed}`].filter(Boolean).join("\n")}>
      <Cut
        text={
          renamed && renamed !== name
            ? `${withoutArguments(name)} → ${withoutArguments(renamed)}`
            : withoutArguments(name)
        }
      />
    </code>
  );
}
