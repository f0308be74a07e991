import { partLabel } from "../../base/causes";
import { figures, percent, time } from "../../base/format";
import { term } from "../../base/terms";
import { SAVING_BASES } from "../../base/vocabulary";
import { slowers, type Slower } from "../../state/job";
import type { Slowdown } from "../../wire/report";
import { More } from "../parts/More";
import { Section } from "../parts/Section";

const FIRST = 8;

/** What the job would gain without stragglers, from the replay of all ranks. */
export function SlowdownPart({ slowdown }: { slowdown: Slowdown }) {
  const { s, low, high, basis, error_share, step_us, ideal_step_us } = slowdown;
  if (s <= 0) return null;
  const range = low > 0 && high > low ? ` (between ${figures(low)} and ${figures(high)})` : "";
  const exact =
    error_share > 0 ? `, which reproduces the recorded steps with ${percent(error_share)} error` : "";
  return (
    <Section
      title="Slowdown by stragglers"
      aside={<span className="gd-muted">{term(SAVING_BASES, basis)?.word ?? basis}</span>}
    >
      <p className="gd-says">
        The job takes {figures(s)} times as long{range} as it would if no rank were slower than its peers
        {step_us > 0 &&
          ideal_step_us > 0 &&
          `: the mean step takes ${time(step_us)} instead of ${time(ideal_step_us)}`}
        . The figures come from replaying all ranks{exact}.
      </p>
      <div className="gd-columns">
        <List
          title="By rank"
          note="slowdown that each causes alone"
          items={slowers(slowdown.by_rank, (key) => (/^\d+$/.test(key) ? `Rank ${key}` : key))}
        />
        <List
          title="By kind of work"
          note="slowdown that each causes alone"
          items={slowers(slowdown.by_kind, partLabel)}
        />
      </div>
    </Section>
  );
}

interface ListProps {
  readonly title: string;
  readonly note: string;
  readonly items: readonly Slower[];
}

function List({ title, note, items }: ListProps) {
  const most = items[0]?.s ?? 1;
  return (
    <div>
      <h3 className="gd-group">
        {title} <span className="gd-muted">{note}</span>
      </h3>
      {items.length === 0 && <p className="gd-nothing">No part of the job makes a difference.</p>}
      <More items={items} first={FIRST}>
        {(shown) => (
          <ul className="gd-slowers">
            {shown.map(({ name, s }) => (
              <li key={name}>
                <span>{name}</span>
                <span className="gd-slower" aria-hidden="true">
                  <i style={{ width: `${(100 * (s - 1)) / (most - 1)}%` }} />
                </span>
                <b className="gd-number">{s.toFixed(3)}&nbsp;×</b>
              </li>
            ))}
          </ul>
        )}
      </More>
    </div>
  );
}
