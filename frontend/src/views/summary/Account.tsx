import { SegmentedControl, Select } from "@mantine/core";
import { cause, WORK } from "../../base/causes";
import { column, percent, plural, time } from "../../base/format";
import { deviceLabel, windowParts } from "../../state/account";
import type { Against } from "../../state/base";
import { deltaOf } from "../../state/delta";
import type { CauseDifference, Device, Report } from "../../wire/report";
import { DeltaText } from "../base/DeltaText";
import { Bar } from "../parts/Bar";
import { CauseSwatch } from "../parts/CauseSwatch";
import { Section } from "../parts/Section";
import { KeyFigures } from "./KeyFigures";

/** A smaller share of the step window has no row of its own: it would read "< 0.1%". */
const LEAST_ROW = 0.001;

/** With more devices than this, use a list instead of buttons. */
const BUTTONS = 4;

interface Props {
  readonly report: Report;
  readonly device: Device;
  readonly onChoose: (at: number) => void;
  readonly against: Against | null;
}

/** Where the step window of a device went, by cause. */
export function Account({ report, device, onChoose, against }: Props) {
  const chosen = report.devices.indexOf(device);
  return (
    <Section
      title="Where the time went"
      about="account"
      aside={<DeviceChoice devices={report.devices} chosen={chosen} onChoose={onChoose} />}
    >
      <div className="gd-account-body">
        <div className="gd-stepbar" data-total>
          <span>All</span>
          <Bar parts={windowParts(device)} whole_us={device.window_us} label="Step window" />
        </div>
        <Legend device={device} against={against} />
        <KeyFigures report={report} against={against} />
      </div>
    </Section>
  );
}

interface ChoiceProps {
  readonly devices: readonly Device[];
  readonly chosen: number;
  readonly onChoose: (at: number) => void;
}

function DeviceChoice({ devices, chosen, onChoose }: ChoiceProps) {
  if (devices.length < 2) return null;
  const data = devices.map((device, at) => ({
    value: String(at),
    label: devices.length <= BUTTONS ? `GPU ${device.id}` : deviceLabel(device),
  }));
  const pick = (value: string | null) => {
    if (value !== null) onChoose(Number(value));
  };
  return devices.length <= BUTTONS ? (
    <SegmentedControl size="xs" data={data} value={String(chosen)} onChange={pick} aria-label="Device" />
  ) : (
    <Select
      size="xs"
      data={data}
      value={String(chosen)}
      onChange={pick}
      allowDeselect={false}
      aria-label="Device"
    />
  );
}

/** The step window by cause. The displayed parts add up to the displayed total. */
function Legend({ device, against }: { device: Device; against: Against | null }) {
  const comparison = against?.comparison;
  const mean = comparison?.mean_step_us;
  const compared = mean !== undefined && mean.base_steps > 0 && mean.candidate_steps > 0;
  const causes = new Map(comparison?.causes.map((change) => [change.cause, change]));
  // A cause of the base alone has a row of 0.
  const own = windowParts(device);
  const gone = compared
    ? [...causes.values()].filter(
        ({ cause: name, base_us }) => base_us > 0 && !own.some((part) => part.name === name),
      )
    : [];
  const all = [...own, ...gone.map(({ cause: name }) => ({ name, us: 0 }))];
  // Against a base, every cause counts. Else those that round to nothing are one row.
  const small = compared
    ? []
    : own.filter(({ name, us }) => us < LEAST_ROW * device.window_us && !WORK.includes(name));
  const summed = small.length > 1 ? small : [];
  const parts = all.filter((part) => !summed.includes(part));
  const other_us = summed.reduce((sum, { us }) => sum + us, 0);
  const times = column(
    [...parts.map((part) => part.us), ...(summed.length > 0 ? [other_us] : [])],
    device.window_us,
  );
  return (
    <table className="gd-legend">
      <caption className="gd-unseen">Step window by cause</caption>
      {compared && (
        <thead>
          <tr className="gd-muted">
            <td />
            <td />
            <td title="Mean step: this recording minus the base">± per step</td>
          </tr>
        </thead>
      )}
      {[true, false].map((works) => (
        <tbody key={works ? "works" : "idle"}>
          <tr>
            <th scope="rowgroup" colSpan={compared ? 3 : 2} className="gd-over">
              {works ? "GPU busy" : "GPU idle, by cause"}
            </th>
          </tr>
          {parts.map(
            (part, at) =>
              WORK.includes(part.name) === works && (
                <tr
                  key={part.name}
                  title={`${percent(part.us, device.window_us)} of the step window. ${cause(part.name).explanation}`}
                  data-part={part.name}
                >
                  <th scope="row">
                    <CauseSwatch name={part.name} />
                    {cause(part.name).word}
                  </th>
                  <td>{times.parts[at]}</td>
                  {compared && <CauseDelta change={causes.get(part.name)} />}
                </tr>
              ),
          )}
          {!works && summed.length > 0 && (
            <tr
              data-part="other"
              title={summed.map(({ name, us }) => `${cause(name).word}: ${time(us)}`).join("\n")}
            >
              <th scope="row" className="gd-rest-of-causes">
                {plural(summed.length, "other cause")}
              </th>
              <td>{times.parts.at(-1)}</td>
            </tr>
          )}
        </tbody>
      ))}
      <tfoot>
        <tr>
          <th scope="row">Step window</th>
          <td data-part="total">{times.total}</td>
          {compared && (
            <td>
              <DeltaText delta={deltaOf(mean.candidate, mean.base, time)} base={time(mean.base)} />
            </td>
          )}
        </tr>
      </tfoot>
    </table>
  );
}

function CauseDelta({ change }: { change: CauseDifference | undefined }) {
  const { base_us = 0, candidate_us = 0 } = change ?? {};
  return (
    <td>
      <DeltaText delta={deltaOf(candidate_us, base_us, time)} base={`${time(base_us)} per step`} />
    </td>
  );
}
