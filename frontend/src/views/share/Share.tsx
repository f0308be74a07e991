import { Button, Menu } from "@mantine/core";
import { useState, type MouseEvent } from "react";
import { fileName, saveFile } from "../../base/save";
import { currentUrl } from "../../state/frame";
import { hasEvents, onlyRecord } from "../../state/kinds";
import { useReport } from "../../state/queries";
import { usePage } from "../../state/store";
import { exportAddress, fetchExport, isEmbedded, type ExportFormat } from "../../wire/client";
import type { TraceEntry } from "../../wire/report";
import { fromTorch } from "../recording/parts";
import { copyText } from "./copy";
import { PerfettoDialog } from "./PerfettoDialog";
import { withNotes } from "./withNotes";
import { PictureItems } from "./PictureItems";

interface Download {
  readonly format: ExportFormat;
  readonly title: string;
  readonly about: string;
}

const PAGE: Download = {
  format: "html",
  title: "One HTML file",
  about: "This page for this trace, with your notes. Opens without a server.",
};

/** For programs, and for few. */
const MORE: readonly Download[] = [
  {
    format: "trace",
    title: "Annotated trace",
    about: "For Perfetto and chrome://tracing: idle time as tracks.",
  },
  { format: "tables", title: "All tables", about: "CSV files of the report, in one ZIP archive." },
  { format: "json", title: "JSON", about: "Everything in the report, for scripts." },
  {
    format: "dispute",
    title: "Wrong diagnosis?",
    about: "A small file to attach to an issue: events around the first finding, without credentials.",
  },
];

/** What contains events of the trace. */
const OF_EVENTS: ReadonlySet<ExportFormat> = new Set(["trace", "dispute"]);

/** Passes on what the page shows: as a link, as a file, or to Perfetto. */
export function Share({ entry }: { entry: TraceEntry }) {
  const [said, setSaid] = useState("");
  const [inPerfetto, setInPerfetto] = useState(false);
  const [more, setMore] = useState(false);
  const report = useReport(entry, false).data?.report; // as far as another view has loaded it
  const notes = usePage((page) => page.notes.get(entry.id)) ?? [];
  if (isEmbedded()) return null;
  const annotatable = hasEvents(entry.kind) && (!report || fromTorch(report));
  const withheld = report?.trace?.withheld;
  const ready = entry.state === "ready" && !onlyRecord(entry.kind);
  const downloads = [PAGE, ...(more ? MORE : [])].filter(
    ({ format }) => !OF_EVENTS.has(format) || annotatable,
  );

  const failed = (error: unknown) => setSaid(error instanceof Error ? error.message : String(error));
  const copy = (what: string, text: Promise<string>) => {
    text
      .then(copyText)
      .then((copied) => setSaid(copied ? `${what} copied` : "The browser does not allow copying"))
      .catch(failed);
  };
  const textOf = (format: ExportFormat) =>
    fetchExport(entry.id, format).then((content) => new TextDecoder().decode(content));
  /** The server does not know the notes: they are in this page alone. */
  const saveWithNotes = () => {
    const name = fileName([entry.worker, entry.span].filter(Boolean).join("."));
    textOf("html")
      .then((html) =>
        saveFile(`${name}.gpudiag.html`, new Blob([withNotes(html, notes)], { type: "text/html" })),
      )
      .catch(failed);
  };

  return (
    <div className="gd-share">
      <span className="gd-muted" role="status">
        {said}
      </span>
      <Menu position="bottom-end" withinPortal onOpen={() => setSaid("")} onClose={() => setMore(false)}>
        <Menu.Target>
          <Button size="compact-xs" variant="default">
            Share
          </Button>
        </Menu.Target>
        <Menu.Dropdown>
          <Menu.Item onClick={() => copy("Link", Promise.resolve(currentUrl()))}>Copy link</Menu.Item>
          <Menu.Item disabled={!ready} onClick={() => copy("Markdown", textOf("markdown"))}>
            Copy as Markdown
            <span className="gd-share-about">For an issue or a pull request.</span>
          </Menu.Item>
          {annotatable && (
            <Menu.Item disabled={!ready} onClick={() => setInPerfetto(true)}>
              Open in Perfetto…
            </Menu.Item>
          )}
          <Menu.Divider />
          <Menu.Label className="gd-muted">
            Download
            {withheld && <span className="gd-share-about">{withheld}</span>}
          </Menu.Label>
          {downloads.map(({ format, title, about }) => (
            <Menu.Item
              key={format}
              component="a"
              download
              href={exportAddress(entry.id, format)}
              disabled={!ready}
              {...(format === "html" &&
                notes.length > 0 && {
                  onClick: (event: MouseEvent) => {
                    event.preventDefault();
                    saveWithNotes();
                  },
                })}
            >
              {title}
              <span className="gd-share-about">{about}</span>
            </Menu.Item>
          ))}
          <PictureItems entry={entry} formats={more ? ["png", "svg"] : ["png"]} onFailed={setSaid} />
          {!more && (
            <Menu.Item closeMenuOnClick={false} onClick={() => setMore(true)}>
              More…
            </Menu.Item>
          )}
        </Menu.Dropdown>
      </Menu>
      {inPerfetto && <PerfettoDialog entry={entry} onClose={() => setInPerfetto(false)} />}
    </div>
  );
}
