import type { Finding } from "../wire/report";

/** A name for each finding that a link can keep: the rule's id, numbered where a rule found several things. */
export function findingKeys(findings: readonly Finding[]): string[] {
  const seen = new Map<string, number>();
  return findings.map(({ rule }) => {
    const n = (seen.get(rule) ?? 0) + 1;
    seen.set(rule, n);
    return n === 1 ? rule : `${rule}-${n}`;
  });
}

/** What a fix would give back, in words: "110 ms to 118 ms", "at most 24 ms"; null where nothing is claimed. */
export interface SavingText {
  readonly low_us: number;
  readonly high_us: number;
  readonly atMost: boolean;
  readonly basis: string;
}

export function savingOf(finding: Finding): SavingText | null {
  const saving = finding.saving;
  if (!saving || saving.high_us <= 0) return null;
  const { low_us, high_us, basis } = saving;
  return basis === "at most"
    ? { low_us, high_us, atMost: true, basis: "" }
    : { low_us, high_us, atMost: false, basis };
}
