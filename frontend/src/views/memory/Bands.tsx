import { useDebouncedValue, useElementSize } from "@mantine/hooks";
import { useLayoutEffect, useMemo, useRef, useState, type PointerEvent } from "react";
import { bytes, codePlace, plural, time } from "../../base/format";
import { tileFor, tileWidth } from "../../base/tiles";
import { term } from "../../base/terms";
import { span, toPixel, toTime, type Viewport } from "../../base/viewport";
import { MEMORY_KINDS } from "../../base/vocabulary";
import { bandAt, kindOf, NOTHING, paintBands, REST, REST_COLOR, type BandPicture } from "../../canvas/bands";
import { useMemoryBands } from "../../state/calls";
import { whenMade } from "../../state/memory";
import { usePage } from "../../state/store";
import { isEmbedded } from "../../wire/client";
import type { DeviceMemory, MemoryBands, TraceEntry } from "../../wire/report";
import { useWheel } from "../parts/useWheel";
import { AXIS_PX, RIGHT_PX } from "./plot";

interface Props {
  readonly entry: TraceEntry;
  readonly memory: DeviceMemory;
  readonly bounds: Viewport;
  readonly view: Viewport;
  readonly onMoment: (at_us: number) => void;
}

const HEIGHT_PX = 260;

/** Of the section, on both sides: as wide as what is right of the curve. */
const PADDING_PX = RIGHT_PX;

/** The server's most columns. */
const WIDEST = 2048;

/** While the user zooms, the picture that is there is stretched. */
const REST_MS = 90;

/** Every allocation as a band over time, the largest ones, with the same time axis as the curve. */
export function Bands({ entry, memory, bounds, view, onMoment }: Props) {
  const { ref, width: whole_px } = useElementSize<HTMLDivElement>();
  const width = Math.max(0, Math.round(whole_px) - AXIS_PX + PADDING_PX);
  const [rested] = useDebouncedValue(view, REST_MS);
  const tile = useMemo(() => tileFor(rested, bounds), [rested, bounds]);
  const { data } = useMemoryBands(entry, memory.device, tile, Math.min(tileWidth(width), WIDEST), width > 0);
  const scheme = usePage((page) => page.scheme);
  const ready = data?.state === "ready" ? data : null;
  const picture = useMemo(
    () => (ready && ready.column_us.length > 0 ? paintBands(ready, HEIGHT_PX, scheme) : null),
    [ready, scheme],
  );
  const stage = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const [pointed, setPointed] = useState(NOTHING);
  useWheel(stage, { view, bounds, width: Math.max(width, 1) }, () => setPointed(NOTHING));
  usePicture(canvas, picture, view, width);

  const spotOf = (event: PointerEvent<HTMLElement>) => {
    const { left, top } = event.currentTarget.getBoundingClientRect();
    return { x: event.clientX - left, y: (event.clientY - top) / HEIGHT_PX };
  };
  const bandUnder = (event: PointerEvent<HTMLElement>): number => {
    if (!picture) return NOTHING;
    const { x, y } = spotOf(event);
    const { start_us, end_us } = picture.bands;
    return bandAt(picture, (toTime(view, x, width) - start_us) / Math.max(end_us - start_us, 1e-9), y);
  };
  return (
    <section className="gd-bands" aria-label="Blocks over time">
      <h3>Blocks over time</h3>
      <div ref={ref}>
        <div
          ref={stage}
          className="gd-bands-stage"
          style={{ marginLeft: AXIS_PX - PADDING_PX, marginRight: 0, height: HEIGHT_PX }}
          onPointerMove={(event) => setPointed(bandUnder(event))}
          onPointerLeave={() => setPointed(NOTHING)}
          onClick={(event) => {
            const { left } = event.currentTarget.getBoundingClientRect();
            onMoment(toTime(view, event.clientX - left, width));
          }}
        >
          <canvas
            ref={canvas}
            width={Math.max(width, 1)}
            height={HEIGHT_PX}
            role="img"
            aria-label={`Allocations over time, the largest ones${picture ? `, up to ${bytes(picture.most)}` : ""}. The table below lists what is live at a moment.`}
          />
          {memory.failures
            .filter(({ us }) => view.start_us <= us && us <= view.end_us)
            .map(({ us }) => (
              <span
                key={us}
                className="gd-bands-failure"
                style={{ left: Math.min(toPixel(view, us, width), width - 2) }}
              />
            ))}
          {picture && <span className="gd-bands-most">{bytes(picture.most)}</span>}
        </div>
      </div>
      <KindsShown bands={ready} />
      <p className="gd-bands-line">
        {said(picture?.bands ?? null, pointed) || (
          <span className="gd-muted">{hint(ready, data?.error?.what)}</span>
        )}
      </p>
    </section>
  );
}

/** The colors of the bands that are there. */
function KindsShown({ bands }: { bands: MemoryBands | null }) {
  const scheme = usePage((page) => page.scheme);
  if (!bands) return null;
  const seen = new Set(bands.band_kind);
  return (
    <ul className="gd-kinds" aria-label="Kinds of the blocks">
      {bands.kinds.map((id, number) => {
        const kind = term(MEMORY_KINDS, id);
        if (!kind || !seen.has(number)) return null;
        return (
          <li key={id} title={kind.explanation}>
            <span className="gd-swatch" style={{ background: kind.color[scheme] }} aria-hidden="true" />
            {kind.word}
          </li>
        );
      })}
      {bands.rest_bytes.some((size) => size > 0) && (
        <li>
          <span className="gd-swatch" style={{ background: REST_COLOR[scheme] }} aria-hidden="true" />
          From before, or smaller
        </li>
      )}
    </ul>
  );
}

function hint(ready: MemoryBands | null, failed: string | undefined): string {
  if (failed) return failed;
  if (!ready) return "Loading the blocks…";
  const zoom = isEmbedded() ? "" : ": zoom in for them";
  const more = ready.more_bands > 0 ? ` ${plural(ready.more_bands, "smaller one")} in gray${zoom}.` : "";
  const click = isEmbedded() ? "" : " Click: what was live then.";
  return `Each band is an allocation, as high as it is large, from when it was made until it was freed.${more}${click}`;
}

function said(bands: MemoryBands | null, band: number): string {
  if (!bands || band === NOTHING) return "";
  if (band === REST) return "Smaller allocations, and memory from before the recording.";
  const site = bands.sites[bands.band_site[band] ?? -1];
  const freed = bands.band_freed_us[band] ?? -1;
  const where = [site?.place ? codePlace(site.place) : "", site?.operator ?? ""].filter(
    (text) => text !== "",
  );
  return [
    bytes(bands.band_bytes[band] ?? 0),
    kindOf(bands, band).word,
    where.join(" · ") || "unknown line",
    `${whenMade(bands.band_made_us[band] ?? -1)} to ${freed < 0 ? "the end" : time(freed)}`,
  ].join(" · ");
}

/** Draw the picture at its place in the view. */
function usePicture(
  canvas: React.RefObject<HTMLCanvasElement | null>,
  picture: BandPicture | null,
  view: Viewport,
  width: number,
): void {
  const painted = useMemo(() => {
    if (!picture) return null;
    const found = document.createElement("canvas");
    found.width = picture.width;
    found.height = picture.height;
    found.getContext("2d")?.putImageData(new ImageData(picture.pixels, picture.width, picture.height), 0, 0);
    return found;
  }, [picture]);
  useLayoutEffect(() => {
    const context = canvas.current?.getContext("2d");
    if (!context) return;
    context.clearRect(0, 0, width, HEIGHT_PX);
    if (!painted || !picture) return;
    const { start_us, end_us } = picture.bands;
    const px = width / Math.max(span(view), 1e-9);
    context.imageSmoothingEnabled = false;
    context.drawImage(painted, (start_us - view.start_us) * px, 0, (end_us - start_us) * px, HEIGHT_PX);
  }, [canvas, painted, picture, view, width]);
}
