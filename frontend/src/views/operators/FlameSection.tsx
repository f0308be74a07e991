import { SegmentedControl, TextInput } from "@mantine/core";
import { useCallback, useEffect, useMemo, useRef, useState } from "react";
import { count, percent, plural, time } from "../../base/format";
import { below, trunk, type FlameOrder } from "../../canvas/flame";
import { kindLabel } from "../../canvas/theme";
import { useCallTree } from "../../state/calls";
import type { TimeSpan } from "../../wire/client";
import type { CallTree, TraceEntry } from "../../wire/report";
import { FlameGraph } from "../parts/FlameGraph";
import { Section } from "../parts/Section";
import { FlameTable } from "./FlameTable";
import { shortName } from "./names";

interface Props {
  readonly entry: TraceEntry;
  readonly span: TimeSpan | null;
  readonly hasGpu: boolean;
  /** The name that is selected in the tables. */
  readonly marked: string | null;
  readonly onName: (name: string, kind: number) => void;
  readonly root: number | null;
  readonly onRoot: (root: number | null) => void;
}

/** The call tree as a flame graph: a click zooms into a call, and selects it in the tables. */
export function FlameSection({ entry, span, hasGpu, marked, onName, root, onRoot }: Props) {
  const [weight, setWeight] = useState(hasGpu ? "gpu" : "host");
  const [order, setOrder] = useState<FlameOrder>("left_heavy");
  const [search, setSearch] = useState("");
  const { data } = useCallTree(entry, weight, root, span, true);
  const tree = data?.state === "ready" ? data : null;
  return (
    <Section
      title="Call tree"
      aside={
        <span className="gd-controls">
          <TextInput
            size="xs"
            aria-label="Highlight calls by name"
            placeholder="Highlight"
            value={search}
            onChange={(event) => setSearch(event.currentTarget.value)}
          />
          {hasGpu && (
            <SegmentedControl
              size="xs"
              aria-label="Width of the calls"
              data={[
                { value: "gpu", label: "GPU time" },
                { value: "host", label: "Host time" },
              ]}
              value={weight}
              onChange={setWeight}
            />
          )}
          <SegmentedControl
            size="xs"
            aria-label="Order of the calls"
            data={[
              { value: "left_heavy", label: "Largest first" },
              { value: "in_order", label: "In order" },
            ]}
            value={order}
            onChange={(value) => setOrder(value)}
          />
        </span>
      }
    >
      {tree && tree.path.length > 0 && <Path tree={tree} onRoot={onRoot} />}
      {tree && tree.node.length > 0 ? (
        <Graph tree={tree} {...{ order, search, marked, onName, onRoot }} />
      ) : (
        <p className="gd-nothing">{nothing(data?.state, weight)}</p>
      )}
    </Section>
  );
}

function nothing(state: string | undefined, weight: string): string {
  if (state !== "ready") return "Loading the call tree…";
  return weight === "gpu" ? "No GPU work of this trace is linked to a call." : "The trace has no host calls.";
}

function Path({ tree, onRoot }: { tree: CallTree; onRoot: (root: number | null) => void }) {
  const [last] = tree.path.slice(-1);
  const nav = useRef<HTMLElement>(null);
  // A stack in the tables above leads here.
  useEffect(() => {
    // In braces: newer browsers return a promise, which React would take for the function that cleans up.
    nav.current?.closest("section")?.scrollIntoView({ block: "nearest" });
  }, [last?.node]);
  return (
    <nav ref={nav} className="gd-flame-path" aria-label="Zoomed into">
      <button type="button" className="gd-link" onClick={() => onRoot(null)}>
        All threads
      </button>
      {tree.path.slice(0, -1).map((step) => (
        <span key={step.node}>
          {" › "}
          <button type="button" className="gd-link" title={step.name} onClick={() => onRoot(step.node)}>
            {shortName(step.name, step.kind)}
          </button>
        </span>
      ))}
      {last && <b title={last.name}>{` › ${shortName(last.name, last.kind)}`}</b>}
    </nav>
  );
}

interface GraphProps extends Pick<Props, "marked" | "onName" | "onRoot"> {
  readonly tree: CallTree;
  readonly order: FlameOrder;
  readonly search: string;
}

function Graph({ tree, order, search, marked, onName, onRoot }: GraphProps) {
  const [unfolded, setUnfolded] = useState(false);
  const whole = useMemo(
    () => ({
      names: tree.names,
      parent: tree.parent,
      name: tree.name,
      kind: tree.kind,
      weight: tree.node_us,
    }),
    [tree],
  );
  const root = useMemo(
    () => (tree.path.length > 0 || unfolded ? null : trunk(whole)),
    [tree, unfolded, whole],
  );
  const { data, nodes } = useMemo(
    () => (root === null ? { data: whole, nodes: null } : below(whole, root)),
    [whole, root],
  );
  const around = root === null ? 0 : callersOf(tree, root);
  const nodeOf = useCallback((at: number) => nodes?.[at] ?? at, [nodes]);
  const nameOf = useCallback((node: number) => tree.names[tree.name[node] ?? 0] ?? "", [tree]);
  const short = useCallback(
    (at: number) => shortName(nameOf(nodeOf(at)), tree.kind[nodeOf(at)] ?? 0),
    [tree, nameOf, nodeOf],
  );
  const text = (at: number) => about(tree, nodeOf(at), nameOf(nodeOf(at)));
  const label = `Flame graph by ${tree.weight === "gpu" ? "GPU time of the launched work" : "host time"}`;
  return (
    <>
      {around > 0 && (
        <p className="gd-flame-path">
          <button type="button" className="gd-link" onClick={() => setUnfolded(true)}>
            Show {plural(around, "common caller")}
          </button>
        </p>
      )}
      <FlameGraph
        {...{ label, data, order, short, text, search, marked }}
        onPick={(at) => {
          const node = nodeOf(at);
          onName(nameOf(node), tree.kind[node] ?? 0);
          onRoot(tree.node[node] ?? null);
        }}
        onBack={() => onRoot(tree.path.at(-2)?.node ?? null)}
      />
      <FlameTable tree={tree} />
    </>
  );
}

function callersOf(tree: CallTree, node: number): number {
  let callers = 0;
  for (let at = tree.parent[node] ?? -1; at >= 0; at = tree.parent[at] ?? -1) callers += 1;
  return callers;
}

function about(tree: CallTree, node: number, name: string): string {
  const total = tree.node_us[node] ?? 0;
  const calls = tree.calls[node] ?? 0;
  const left = tree.left_out[node] ?? 0;
  const parts = [
    `${time(total)} (${percent(total, tree.total_us)})`,
    `${time(tree.self_us[node] ?? 0)} self`,
    calls > 0 ? plural(calls, "call") : "",
    left > 0 ? `${count(left)} more below, ${time(tree.left_out_us[node] ?? 0)}` : "",
    (tree.kind[node] ?? 0) === 0 ? "thread" : kindLabel(tree.kind[node] ?? 0).toLowerCase(),
  ];
  return `${name}: ${parts.filter((part) => part !== "").join(" · ")}`;
}
