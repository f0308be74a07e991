import { CloseButton } from "@mantine/core";
import { useEffect, useRef } from "react";

const KEYS = [
  ["W S or + −", "Zoom in, zoom out"],
  ["A D", "Pan left, right"],
  ["0, Home", "Show everything, go to the start"],
  ["← →", "Previous or next event in the lane; with no event selected, pan"],
  ["↑ ↓", "Enclosing or nested event; with no event selected, zoom"],
  ["Enter", "Zoom to the selected event or range"],
  ["M", "Select the range of the selected event, or the visible range"],
  ["N P", "Next shorter or longer gap"],
  ["/", "Find events; Enter and Shift-Enter step through the matches"],
  ["Escape", "Close the panel and clear the selection"],
  ["Wheel, Ctrl-wheel", "Zoom at the pointer. When fully zoomed out, the wheel scrolls."],
  ["Shift-wheel", "Pan"],
  ["Drag, Shift-drag", "Pan, select a range"],
] as const;

interface Props {
  readonly open: boolean;
  readonly onClose: (open: false) => void;
}

/** The keys of the timeline. The browser's dialog keeps the focus in it. */
export function Help({ open, onClose }: Props) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    if (open) dialog.current?.showModal();
    else dialog.current?.close();
  }, [open]);
  return (
    <dialog ref={dialog} className="gd-help" aria-label="Keyboard shortcuts" onClose={() => onClose(false)}>
      <header>
        <h3>Keyboard shortcuts</h3>
        <CloseButton size="sm" aria-label="Close" onClick={() => onClose(false)} />
      </header>
      <dl>
        {KEYS.map(([keys, does]) => (
          <div key={keys}>
            <dt>
              <kbd>{keys}</kbd>
            </dt>
            <dd>{does}</dd>
          </div>
        ))}
      </dl>
    </dialog>
  );
}
