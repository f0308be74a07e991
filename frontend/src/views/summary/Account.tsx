import { SegmentedControl, Select } from "@mantine/core";
import { cause, WORK } from "../../base/causes";
import { column, percent, time } from "../../base/format";
import { deviceLabel, windowParts } from "../../state/account";
import type { Device, Report } from "../../wire/report";
import { Bar } from "../parts/Bar";
import { CauseSwatch } from "../parts/CauseSwatch";
import { Section } from "../parts/Section";
import { KeyFigures } from "./KeyFigures";

/** With more devices than this, use a list instead of buttons. */
const BUTTONS = 4;

interface Props {
  readonly report: Report;
  readonly device: Device;
  readonly onChoose: (at: number) => void;
}

/** Where the step window of a device went, by cause. */
export function Account({ report, device, onChoose }: Props) {
  const chosen = report.devices.indexOf(device);
  return (
    <Section
      title="Where the time went"
      about="account"
      className="gd-account"
      aside={<DeviceChoice devices={report.devices} chosen={chosen} onChoose={onChoose} />}
    >
      <div className="gd-account-body">
        <div className="gd-stepbar" data-total>
          <span>All</span>
          <Bar parts={windowParts(device)} whole_us={device.window_us} label="Step window" />
          <span>{time(device.window_us)}</span>
        </div>
        <Legend device={device} />
        <KeyFigures report={report} />
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
function Legend({ device }: { device: Device }) {
  const parts = windowParts(device);
  const times = column(
    parts.map((part) => part.us),
    device.window_us,
  );
  return (
    <table className="gd-legend">
      <caption className="gd-unseen">Step window by cause</caption>
      {[true, false].map((works) => (
        <tbody key={works ? "works" : "idle"}>
          <tr>
            <th scope="rowgroup" colSpan={3} className="gd-over">
              {works ? "GPU busy" : "GPU idle, by cause"}
            </th>
          </tr>
          {parts.map(
            (part, at) =>
              WORK.includes(part.name) === works && (
                <tr key={part.name} title={cause(part.name).explanation} data-part={part.name}>
                  <th scope="row">
                    <CauseSwatch name={part.name} />
                    {cause(part.name).word}
                  </th>
                  <td>{times.parts[at]}</td>
                  <td>{percent(part.us, device.window_us)}</td>
                </tr>
              ),
          )}
        </tbody>
      ))}
      <tfoot>
        <tr>
          <th scope="row">Step window</th>
          <td data-part="total">{times.total}</td>
          <td>{percent(1)}</td>
        </tr>
      </tfoot>
    </table>
  );
}
