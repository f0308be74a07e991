import { Button, Group, Modal, Text } from "@mantine/core";
import { useEffect, useState } from "react";
import { bytes } from "../../base/format";
import { openInPerfetto, type Handed } from "../../state/perfetto";
import { fetchExport } from "../../wire/client";
import type { TraceEntry } from "../../wire/report";

const OUTCOMES: Readonly<Record<Handed, string>> = {
  handed: "The trace is open in Perfetto in another tab.",
  blocked: "The browser blocked the new tab. Allow pop-ups for this page, and try again.",
  silent:
    "ui.perfetto.dev does not answer. If you are offline, download the annotated trace and open it in chrome://tracing or a local copy of Perfetto.",
};

interface Props {
  readonly entry: TraceEntry;
  readonly onClose: () => void;
}

/** Loads the annotated trace, and hands it to Perfetto when the user says so. */
export function PerfettoDialog({ entry, onClose }: Props) {
  const [loaded, setLoaded] = useState(0);
  const [trace, setTrace] = useState<ArrayBuffer | null>(null);
  const [said, setSaid] = useState("");

  useEffect(() => {
    const stop = new AbortController();
    fetchExport(entry.id, "trace", stop.signal, setLoaded)
      .then(setTrace)
      .catch((error: unknown) => {
        if (!stop.signal.aborted) setSaid(error instanceof Error ? error.message : String(error));
      });
    return () => stop.abort();
  }, [entry.id]);

  // A click opens the tab: browsers block tabs that open by themselves.
  const open = (content: ArrayBuffer) => {
    setSaid("Waiting for ui.perfetto.dev…");
    const name = `${entry.run} ${entry.worker}`;
    void openInPerfetto(content, name, `${entry.worker}.gpudiag.json.gz`).then((outcome) =>
      setSaid(OUTCOMES[outcome]),
    );
  };

  return (
    <Modal opened onClose={onClose} title="Open in Perfetto" centered>
      <Text size="sm">
        This opens ui.perfetto.dev in a new tab and hands it the annotated trace. The trace stays in this
        browser: Perfetto reads it there and does not upload it.
      </Text>
      <Text size="sm" className="gd-muted" mt="sm" role="status">
        {said || (trace ? `${bytes(trace.byteLength)} ready` : `Preparing the trace: ${bytes(loaded)}`)}
      </Text>
      <Group justify="flex-end" mt="md">
        <Button variant="default" onClick={onClose}>
          Close
        </Button>
        <Button
          disabled={trace === null}
          onClick={() => {
            if (trace) open(trace);
          }}
        >
          Open Perfetto
        </Button>
      </Group>
    </Modal>
  );
}
