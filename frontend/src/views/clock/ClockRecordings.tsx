import { count, date, sentence } from "../../base/format";
import { fileOf, recordedTogether } from "../../state/clock";
import { useTraces } from "../../state/queries";
import { usePage } from "../../state/store";
import type { ClockRecording, TraceEntry } from "../../wire/report";
import { isEmbedded } from "../../wire/client";
import { Section } from "../parts/Section";

interface Props {
  readonly entry: TraceEntry;
  readonly recordings: readonly ClockRecording[];
}

/** What the clocks had recorded, why, and where the diagnoses are. */
export function ClockRecordings({ entry, recordings }: Props) {
  const { data } = useTraces(!isEmbedded());
  const openTab = usePage((page) => page.openTab);
  const traces = data?.traces ?? [];
  return (
    <Section title="Recordings">
      {recordings.length === 0 && (
        <p className="gd-nothing">The clock has recorded nothing since this job began.</p>
      )}
      <ol className="gd-changes">
        {recordedTogether(recordings).map(({ step, why, of }, index) => (
          <li key={index}>
            <b>{index + 1}</b>
            <span>
              {sentence(why)} <span className="gd-muted">Recorded from step {count(step)}.</span>
            </span>
            <span className="gd-clock-files">
              {of.map((recording) => {
                const file = fileOf(traces, entry, recording);
                const name = `rank ${recording.rank}, ${date(recording.time_s)}`;
                return file ? (
                  <button
                    key={name}
                    type="button"
                    className="gd-link"
                    title={file.sentence || "Open the diagnosis of this recording"}
                    onClick={() => {
                      openTab("summary", file.id);
                    }}
                  >
                    Diagnosis of {name}
                  </button>
                ) : (
                  <span key={name} className="gd-muted">
                    {name}: not in the log directory
                  </span>
                );
              })}
            </span>
          </li>
        ))}
      </ol>
    </Section>
  );
}
