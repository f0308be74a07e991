import { CloseButton } from "@mantine/core";
import { useEffect, useRef } from "react";

const KEYS = [
  ["W S or + −", "Zoom in, zoom out"],
  ["A D", "Pan left, right"],
  ["0, Home", "Show everything, go to the start"],
  ["← →", "Previous, next event in the lane of the selected event; without one, pan"],
  ["↑ ↓", "Enclosing, nested event; without a selected event, zoom"],
  ["Enter", "Zoom to the selected event or range"],
  ["M", "Mark the selected event, or what is visible, as a range"],
  ["N P", "Next shorter, next longer gap"],
  ["/", "Find events; Enter and Shift-Enter step through the matches"],
  ["Escape", "Close the panel and clear the selection"],
  ["Wheel, Ctrl-wheel", "Zoom at the pointer. With nothing to zoom, the wheel scrolls."],
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
    <dialog
      ref={dialog}
      className="gd-help"
      aria-label="Keys of the timeline"
      onClose={() => {
        onClose(false);
      }}
    >
      <header>
        <h3>Keys of the timeline</h3>
        <CloseButton
          size="sm"
          aria-label="Close"
          onClick={() => {
            onClose(false);
          }}
        />
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
