import { useState } from "react";
import { bytes, count, time } from "../../base/format";
import type { Order } from "../../base/sorting";
import { rateText } from "../../state/job";
import type { CollectiveSize } from "../../wire/report";
import { DataTable, type Column } from "../parts/DataTable";
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
  {
    id: "bytes",
    title: "Size",
    unit: "bytes",
    width: 96,
    figures: true,
    value: (size) => size.bytes || NaN,
    cell: (size) => (size.bytes > 0 ? bytes(size.bytes) : ""),
  },
  {
    id: "ranks",
    title: "Ranks",
    width: 80,
    figures: true,
    value: ({ ranks }) => ranks,
    cell: ({ ranks }) => count(ranks),
  },
  {
    id: "count",
    title: "Count",
    width: 80,
    figures: true,
    value: (size) => size.count,
    cell: (size) => count(size.count),
  },
  {
    id: "transfer",
    title: "Transfer",
    unit: "µs",
    about: "Median time after the last rank has arrived",
    width: 100,
    figures: true,
    value: ({ transfer_us }) => transfer_us,
    cell: ({ transfer_us }) => time(transfer_us),
  },
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
