import { SegmentedControl, Select } from "@mantine/core";
import { useState } from "react";
import { cause, WORK } from "../../base/causes";
import { column, percent, plural, time } from "../../base/format";
import { deviceLabel, inferredReason, stepParts, stepsOf, windowParts } from "../../state/account";
import type { Device, InferredSteps, Report, StepAccount } from "../../wire/report";
import { Bar } from "../parts/Bar";
import { CauseSwatch } from "../parts/CauseSwatch";
import { Section } from "../parts/Section";
import { ShowOnTimeline } from "../parts/ShowOnTimeline";

/** With more devices than this, use a list instead of buttons. */
const BUTTONS = 4;

/** Time by cause, for the step window and for each step. */
export function Steps({ report }: { report: Report }) {
  const [chosen, setChosen] = useState(0);
  const device = report.devices[chosen] ?? report.devices[0];
  if (!device) return null;
  const { accounts, inferred } = stepsOf(report, device);
  // A single step is the step window itself.
  const several = accounts.length > 1;
  return (
    <Section
      title="Time per step by cause"
      about="account"
      className="gd-steps"
      aside={<DeviceChoice devices={report.devices} chosen={chosen} onChoose={setChosen} />}
    >
      <div className="gd-steps-body" data-steps={several || undefined}>
        <div className="gd-stepbar" data-total>
          <span>All</span>
          <Bar parts={windowParts(device)} whole_us={device.window_us} label="Step window" />
          <span>{time(device.window_us)}</span>
        </div>
        <Legend device={device} />
        {several && <StepBars accounts={accounts} inferred={inferred} />}
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

interface BarsProps {
  readonly accounts: readonly StepAccount[];
  readonly inferred: InferredSteps | null;
}

function StepBars({ accounts, inferred }: BarsProps) {
  const longest = Math.max(...accounts.map((step) => step.duration_us));
  return (
    <div>
      {inferred && <Inferred inferred={inferred} />}
      <div className="gd-stepbars">
        {accounts.map((step, at) => (
          <div className="gd-stepbar" key={at}>
            <span title={step.name}>{step.name.replace(/^ProfilerStep#/, "Step ")}</span>
            <Bar parts={stepParts(step)} whole_us={step.duration_us} scale_us={longest} label={step.name} />
            <span>{time(step.duration_us)}</span>
            <ShowOnTimeline of={step} />
          </div>
        ))}
      </div>
    </div>
  );
}

/** Explains what the bars show if no steps were recorded. */
function Inferred({ inferred }: { inferred: InferredSteps }) {
  return (
    <p className="gd-inferred">
      <b>{inferred.are_steps ? "Inferred steps." : "Repetition of launches, possibly not of steps."}</b>{" "}
      {inferredReason(inferred)} There are {plural(inferred.repetitions, "repetition")} of{" "}
      {plural(inferred.period_launches, "launch", "launches")} each. The median takes{" "}
      {time(inferred.median_us)}.
    </p>
  );
}
