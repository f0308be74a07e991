import { useState } from "react";
import { bytes, count, time } from "../../base/format";
import type { Order } from "../../base/sorting";
import { rateText } from "../../state/job";
import type { CollectiveSize } from "../../wire/report";
import { DataTable, type Column } from "../parts/DataTable";
import { figure } from "../parts/figure";
import { Section } from "../parts/Section";

function rate(
  id: string,
  title: string,
  about: string,
  of: (size: CollectiveSize) => number,
): Column<CollectiveSize> {
  return {
    id,
    title,
    unit: "GB/s",
    about,
    width: 130,
    figures: true,
    value: (size) => of(size) || NaN,
    cell: (size) => rateText(of(size)),
  };
}

const COLUMNS: readonly Column<CollectiveSize>[] = [
  { id: "kind", title: "Kind", value: ({ kind }) => kind, cell: ({ kind }) => kind },
  figure("bytes", "Size", 96, (size) => size.bytes || NaN, bytes),
  figure("ranks", "Ranks", 80, ({ ranks }) => ranks, count),
  figure("count", "Count", 80, (size) => size.count, count),
  figure(
    "transfer",
    "Transfer",
    100,
    ({ transfer_us }) => transfer_us,
    time,
    "Median time after the last rank has arrived",
  ),
  rate(
    "algorithm",
    "Algorithm",
    "Size divided by transfer time",
    ({ algorithm_gb_per_s }) => algorithm_gb_per_s,
  ),
  rate("bus", "Bus", "Bus bandwidth, as defined by nccl-tests", ({ bus_gb_per_s }) => bus_gb_per_s),
  rate(
    "slowest",
    "Slowest",
    "Algorithm bandwidth of the slowest one",
    ({ slowest_gb_per_s }) => slowest_gb_per_s,
  ),
];

/** How fast collectives transfer, by kind and size. */
export function Bandwidth({ sizes }: { sizes: readonly CollectiveSize[] }) {
  const [order, setOrder] = useState<Order>({ by: "transfer", descending: true });
  if (sizes.length === 0) return null;
  return (
    <Section
      title="Bandwidth by size"
      aside={<span className="gd-muted">excluding the wait for late ranks</span>}
    >
      <DataTable
        label="Bandwidth"
        columns={COLUMNS}
        rows={sizes}
        rowKey={({ kind, bytes: size, ranks }) => [kind, size, ranks].join("/")}
        order={order}
        onOrder={setOrder}
        maxHeight="320px"
        minWidth={860}
      />
    </Section>
  );
}
