// Findings as the page shows them: keys, costs and savings in words.

import { bytes, percent, time } from "../base/format";
import { Finding_Severity, type Finding, type Unchecked, type Verdict } from "../wire/report";

/** Return a key per finding for links: the rule's id, numbered if a rule has several findings. */
export function findingKeys(findings: readonly Finding[]): string[] {
  const seen = new Map<string, number>();
  return findings.map(({ rule }) => {
    const n = (seen.get(rule) ?? 0) + 1;
    seen.set(rule, n);
    return n === 1 ? rule : `${rule}-${n}`;
  });
}

/** Return true if the finding is only about the recording. `better_recording` says all of these in one line. */
export function isHint({ rule, severity }: Finding): boolean {
  return rule.startsWith("GD9") && severity === Finding_Severity.INFO;
}

const RATE = /(?: by)? ([\d.,]+\s?[KMGT]?i?B) per [a-z ]+?(?=$|[:,.])/;

/** The title of a finding about growing memory without the rate: what stands beside it has that. */
export function withoutRate(title: string): string {
  return title.replace(RATE, "");
}

/** Whether the verdict above a finding has the rate of its leak. */
export function saysRate(verdict: Verdict | undefined, { title }: Finding): boolean {
  const rate = RATE.exec(title)?.[1];
  return rate !== undefined && `${verdict?.headline} ${verdict?.leak}`.includes(` ${rate} per `);
}

/** The verdict's sentence without the titles of the findings that stand below it. */
export function sentenceAbove({
  verdict,
  findings,
}: {
  readonly verdict?: Verdict | undefined;
  readonly findings: readonly Finding[];
}): string {
  const titles = findings.filter((finding) => !isHint(finding)).map(({ title }) => `${title}. `);
  return titles.reduce((said, title) => said.replace(title, ""), verdict?.sentence ?? "");
}

export interface UncheckedGroup {
  readonly reason: string;
  readonly how_to_record: string;
  readonly rules: readonly Unchecked[];
}

/** Group rules that could not check for the same reason. Without a GPU, most rules share one. */
export function groupedByReason(items: readonly Unchecked[]): UncheckedGroup[] {
  const groups = new Map<string, Unchecked[]>();
  for (const item of items) {
    const key = JSON.stringify([item.reason, item.how_to_record]);
    groups.set(key, [...(groups.get(key) ?? []), item]);
  }
  return [...groups.values()].flatMap((rules) =>
    rules[0] ? [{ reason: rules[0].reason, how_to_record: rules[0].how_to_record, rules }] : [],
  );
}

interface CostText {
  /** "124 ms", "1.2 GiB". */
  readonly amount: string;
  /** "27.1% of the step window", "on GPU 0". */
  readonly of: string;
}

/** Return true if the finding costs memory. The memory view shows such findings. */
export function costsMemory({ cost_bytes, cost_bytes_per_step }: Finding): boolean {
  return cost_bytes > 0 || cost_bytes_per_step > 0;
}

/** Format the cost of a finding as time or memory, or return null if it costs neither. `window_us` 0: not known. */
export function costText(finding: Finding, window_us: number): CostText | null {
  const { cost_us, cost_bytes, cost_bytes_per_step: growth, memory_device: device } = finding;
  const where = device < 0 ? "on the host" : `on GPU ${device}`;
  if (growth > 0) {
    return {
      amount: `${bytes(growth)} per step`,
      of: `${cost_bytes > 0 ? `${bytes(cost_bytes)} ` : ""}${where}`,
    };
  }
  if (cost_bytes > 0) return { amount: bytes(cost_bytes), of: where };
  if (cost_us > 0) {
    return {
      amount: time(cost_us),
      of: window_us > 0 ? `${percent(cost_us, window_us)} of the step window` : "",
    };
  }
  return null;
}
