import { Menu } from "@mantine/core";
import type { TraceEntry } from "../../wire/report";
import { savePicture, type PictureFormat } from "./picture";

interface Props {
  readonly entry: TraceEntry;
  readonly formats: readonly PictureFormat[];
  readonly onFailed: (said: string) => void;
}

const ABOUT: Readonly<Record<PictureFormat, string>> = {
  png: "What this view shows now, at twice its size.",
  svg: "The same for browsers; texts stay texts.",
};

/** Save what the open view shows as a picture. */
export function PictureItems({ entry: { run, worker }, formats, onFailed }: Props) {
  const save = (format: PictureFormat) => {
    const view = document.querySelector<HTMLElement>(".gd-main");
    if (!view) return;
    savePicture(view, [run, worker, view.dataset.view].join("."), format).catch((error: unknown) =>
      onFailed(error instanceof Error ? error.message : String(error)),
    );
  };
  return formats.map((format) => (
    <Menu.Item key={format} onClick={() => save(format)}>
      Picture ({format.toUpperCase()})<span className="gd-share-about">{ABOUT[format]}</span>
    </Menu.Item>
  ));
}
