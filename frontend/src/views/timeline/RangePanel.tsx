import { Button, CloseButton, Loader, SegmentedControl } from "@mantine/core";
import { useMemo, useState } from "react";
import { cause } from "../../base/causes";
import { count, exactTime, percent, time } from "../../base/format";
import { functionFirst } from "../../base/names";
import { span, type Viewport } from "../../base/viewport";
import { usePage } from "../../state/store";
import { useRangeStatistics } from "../../state/timelineQuery";
import { fileHasEvents, isEmbedded } from "../../wire/client";
import type { DeviceRange, NamedTime, RangeStatistics, ThreadRange, TraceEntry } from "../../wire/report";
import { CauseSwatch } from "../parts/CauseSwatch";
import { DataTable, type Column } from "../parts/DataTable";
import { Problem } from "../status/Problem";
import { callsOfSelection, zoomToSelection } from "./actions";
import { NotInFile } from "./NotInFile";
import type { Search } from "./useSearch";

interface Props {
  readonly entry: TraceEntry;
  readonly range: Viewport;
  readonly search: Search;
}

const PARTS = [
  { value: "cause", label: "Cause" },
  { value: "operators", label: "Operators" },
  { value: "kernels", label: "GPU work" },
  { value: "calls", label: "Calls" },
  { value: "threads", label: "Threads" },
] as const;

const OF_GPU: readonly string[] = ["cause", "kernels"];

/** Where the time of the selected range went. */
export function RangePanel({ entry, range, search }: Props) {
  const { data, error } = useRangeStatistics(entry, range);
  const [part, setPart] = useState<string>("cause");
  const setSelection = usePage((page) => page.setSelection);
  return (
    <aside className="gd-gap" aria-label="Selected range">
      <CloseButton className="gd-gap-close" size="sm" aria-label="Close" onClick={() => setSelection(null)} />
      <h3>
        {time(span(range))} <span>selected</span>
      </h3>
      <p className="gd-muted">
        {exactTime(range.start_us)} to {exactTime(range.end_us)}
      </p>
      <span className="gd-buttons">
        <Button size="compact-xs" variant="light" onClick={zoomToSelection}>
          Zoom in
        </Button>
        {!isEmbedded() && (
          <Button size="compact-xs" variant="light" onClick={callsOfSelection}>
            Flame graph and calls
          </Button>
        )}
      </span>
      <SegmentedControl
        fullWidth
        size="xs"
        aria-label="Statistics by"
        data={[...PARTS]}
        value={part}
        onChange={setPart}
      />
      {!data && !error && <Loader size="sm" />}
      {error && <Problem problem={{ what: error.message, where: "", remedy: "" }} />}
      {data?.error && <Problem problem={data.error} />}
      <NotInFile />
      {data?.state === "ready" && <Part part={part} data={data} search={search} />}
    </aside>
  );
}

interface PartProps {
  readonly part: string;
  readonly data: RangeStatistics;
  readonly search: Search;
}

function Part({ part, data, search }: PartProps) {
  const whole_us = data.end_us - data.start_us;
  if (!fileHasEvents(OF_GPU.includes(part) ? "gpu" : "host", data)) {
    return <p className="gd-muted">This file does not have all events in the range.</p>;
  }
  const find = (kind: string) => (text: string) =>
    search.set({ text: text.slice(0, 200), kind, regex: false });
  switch (part) {
    case "operators":
      return <Names rows={data.operators} label="Operators by self time" onFind={find("operator")} nested />;
    case "kernels":
      return <Names rows={data.kernels} label="GPU work by name" onFind={find("kernel")} />;
    case "calls":
      return <Names rows={data.calls} label="Runtime calls by name" onFind={find("call")} />;
    case "threads":
      return data.threads.map((thread, at) => <Thread key={at} thread={thread} whole_us={whole_us} />);
    default:
      return (
        <>
          {data.devices.length === 0 && <p className="gd-muted">The trace has no GPU work.</p>}
          {data.devices.map((device) => (
            <Gpu key={device.device} device={device} whole_us={whole_us} />
          ))}
        </>
      );
  }
}

interface Share {
  readonly word: string;
  readonly us: number;
  readonly cause?: string;
}

/** A table of parts that add up to the range. */
function Shares({ title, rows, whole_us }: { title: string; rows: readonly Share[]; whole_us: number }) {
  return (
    <table className="gd-shares">
      <caption>{title}</caption>
      <tbody>
        {rows
          .filter(({ us }) => us > 0)
          .map((row) => (
            <tr key={row.word}>
              <th scope="row">
                {row.cause && <CauseSwatch name={row.cause} />}
                {row.word}
              </th>
              <td className="gd-number">{time(row.us)}</td>
              <td className="gd-number gd-muted">{percent(row.us, whole_us)}</td>
            </tr>
          ))}
      </tbody>
    </table>
  );
}

function Gpu({ device, whole_us }: { device: DeviceRange; whole_us: number }) {
  const idle = device.idle_by_cause.map(({ cause: name, us }) => ({
    word: `Idle: ${cause(name).word}`,
    us,
    cause: name,
  }));
  const rows = [
    { word: "Computing", us: device.computing_us },
    { word: "Copying, exposed", us: device.copying_us },
    { word: "Communicating, exposed", us: device.communicating_us },
    ...idle.sort((a, b) => b.us - a.us),
    { word: "Before or after all GPU work", us: device.outside_us },
  ];
  const gaps = device.gaps === 1 ? "1 gap" : `${count(device.gaps)} gaps`;
  return <Shares title={`GPU ${device.device}, ${gaps}`} rows={rows} whole_us={whole_us} />;
}

function Thread({ thread, whole_us }: { thread: ThreadRange; whole_us: number }) {
  const rows = [
    { word: "Operators", us: thread.operators_us },
    { word: "Runtime calls", us: thread.calls_us },
    { word: "Python", us: thread.python_us },
    { word: "Annotations", us: thread.annotations_us },
    { word: "Nothing recorded", us: thread.nothing_us },
  ];
  return <Shares title={thread.title} rows={rows} whole_us={whole_us} />;
}

interface NamesProps {
  readonly rows: readonly NamedTime[];
  readonly label: string;
  readonly onFind: (name: string) => void;
  /** Events of these names contain each other, so their total differs from their own time. */
  readonly nested?: boolean;
}

function Names({ rows, label, onFind, nested = false }: NamesProps) {
  const [order, setOrder] = useState({ by: "self", descending: true });
  const columns = useMemo((): Column<NamedTime>[] => {
    const figures = (
      id: string,
      title: string,
      width: number,
      of: (row: NamedTime) => number,
      text = time,
    ) => ({
      ...{ id, title, width, figures: true, value: of },
      ...(text === time ? { unit: "µs" as const } : {}),
      cell: (row: NamedTime) => text(of(row)),
    });
    return [
      {
        id: "name",
        title: "Name",
        value: ({ name }) => name,
        cell: ({ name }) => <span title={name}>{name ? functionFirst(name) : "All others"}</span>,
      },
      figures("count", "Count", 62, (row) => row.count, count),
      figures("self", nested ? "Self" : "Time", 72, (row) => row.self_us),
      ...(nested ? [figures("total", "Total", 72, (row) => row.total_us)] : []),
    ];
  }, [nested]);
  if (rows.length === 0) return <p className="gd-muted">None in this range.</p>;
  return (
    <DataTable
      label={label}
      columns={columns}
      rows={rows}
      rowKey={({ name }) => name}
      order={order}
      onOrder={setOrder}
      maxHeight="none"
      onOpen={({ name }) => {
        if (name) onFind(name);
      }}
    />
  );
}
