import { expect, it } from "vitest";
import { tableChange } from "./baseTables";

interface Row {
  readonly name: string;
  readonly us: number;
}

function change(
  own: readonly Row[],
  base: readonly Row[],
  more: { total?: number; renamed?: [string, string] },
) {
  return tableChange(
    { rows: own, total_rows: own.length },
    { rows: base, total_rows: more.total ?? base.length },
    { own: 2, base: 4 },
    ({ name }: Row) => name,
    ({ name, us }) => ({ name, calls: 8, host_us: 0, gpu_us: us }),
    new Map(more.renamed ? [more.renamed] : []),
  );
}

it("compares rows of the same name per step", () => {
  const { rows, gone } = change([{ name: "mm", us: 10 }], [{ name: "mm", us: 12 }], {});
  expect(rows.get("mm")).toMatchObject({ calls: 4, base_calls: 2, gpu_us: 5, base_gpu_us: 3, was: "" });
  expect(gone).toEqual([]);
});

it("knows new rows, rows of the base alone, and renamed kernels", () => {
  const own = [
    { name: "new", us: 4 },
    { name: "fused", us: 2 },
  ];
  const base = [
    { name: "old", us: 40 },
    { name: "plain", us: 8 },
  ];
  const { rows, gone } = change(own, base, { renamed: ["fused", "plain"] });
  expect(rows.get("new")).toMatchObject({ gpu_us: 2, base_gpu_us: 0 });
  expect(rows.get("fused")).toMatchObject({ gpu_us: 1, base_gpu_us: 2, was: "plain" });
  expect(gone).toEqual([{ name: "old", us: 10 }]);
});

it("does not call a row new if the base's table is cut off", () => {
  const { rows } = change([{ name: "mm", us: 4 }], [{ name: "other", us: 4 }], { total: 9 });
  expect(rows.has("mm")).toBe(false);
});
