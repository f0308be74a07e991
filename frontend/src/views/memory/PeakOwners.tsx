import { useElementSize } from "@mantine/hooks";
import { useState } from "react";
import { bytes, percent } from "../../base/format";
import { MEMORY_KINDS } from "../../base/vocabulary";
import { textOn } from "../../canvas/theme";
import { onTile, peakTiles, tileDetail, tileTitle, type KindTiles, type Tile } from "../../state/memory";
import { usePage } from "../../state/store";
import type { DeviceMemory, MemoryOwner } from "../../wire/report";
import { squarify, type Rect } from "./treemap";

const HEIGHT_PX = 240;

/** Smaller tiles are hard to hit: they have no text, and the Tab key skips them. */
const TEXT_FROM_PX = { width: 46, height: 24 } as const;

interface Props {
  readonly memory: DeviceMemory;
  /** The owner whose allocations the range panel highlights. */
  readonly picked: MemoryOwner | null;
  readonly onPick: (owner: MemoryOwner) => void;
}

/** Memory that was live at the peak, by kind and owner. */
export function PeakOwners({ memory, picked, onPick }: Props) {
  const { ref, width } = useElementSize<HTMLUListElement>();
  const [pointed, setPointed] = useState<Tile | null>(null);
  const kinds = peakTiles(memory);
  if (kinds.length === 0) return null;
  const named = kinds.some(({ tiles }) => tiles.some(canBePicked));
  if (!named && kinds.every(({ kind }) => kind === "unknown")) {
    return <p className="gd-muted">This recording does not show what was allocated at its peak.</p>;
  }
  const whole = memory.peak_allocated_bytes;
  const areas = squarify(
    kinds.map((kind) => kind.bytes),
    { x: 0, y: 0, width, height: HEIGHT_PX },
  );
  return (
    <section aria-label="Memory at the peak">
      <h3>Memory at the peak: {bytes(whole)}</h3>
      <KindLegend kinds={kinds} whole={whole} />
      <ul
        className="gd-treemap"
        ref={ref}
        style={{ height: HEIGHT_PX }}
        aria-label="Owners of memory at the peak"
      >
        {kinds.map((kind, at) => (
          <Tiles
            key={kind.kind}
            {...{ kind, whole, picked, onPick }}
            within={areas[at]}
            onPoint={setPointed}
          />
        ))}
      </ul>
      <p className="gd-memory-pointed" aria-live="polite">
        {pointed ? (
          <>
            <b>{tileName(pointed, whole)}</b> {tileDetail(pointed)}
          </>
        ) : (
          <span className="gd-muted">
            Hover over a tile for details.{named && " Click one to see its allocations up to the peak."}
          </span>
        )}
      </p>
    </section>
  );
}

/** Only a named owner has allocations to show. Memory from before the recording has none. */
function canBePicked(tile: Tile): boolean {
  return tile.owner !== null && tileTitle(tile) !== "";
}

function KindLegend({ kinds, whole }: { kinds: readonly KindTiles[]; whole: number }) {
  const scheme = usePage((page) => page.scheme);
  return (
    <ul className="gd-kinds" aria-label="Kinds of memory at the peak">
      {kinds.map(({ kind, bytes: size }) => (
        <li key={kind} title={MEMORY_KINDS[kind].explanation}>
          <span
            className="gd-swatch"
            style={{ background: MEMORY_KINDS[kind].color[scheme] }}
            aria-hidden="true"
          />
          {MEMORY_KINDS[kind].word} {bytes(size)} <span className="gd-muted">{percent(size, whole)}</span>
        </li>
      ))}
    </ul>
  );
}

/** Begins with what is seen on the tile, so that it can be named by voice. */
function tileName(tile: Tile, whole: number): string {
  const { word } = MEMORY_KINDS[tile.kind];
  const title = onTile(tileTitle(tile));
  const share = percent(tile.bytes, whole);
  return title === ""
    ? `${word} ${bytes(tile.bytes)} (${share})`
    : `${title} ${bytes(tile.bytes)} (${share}), ${word}`;
}

interface TilesProps {
  readonly kind: KindTiles;
  readonly within: Rect | undefined;
  readonly whole: number;
  readonly picked: Props["picked"];
  readonly onPick: Props["onPick"];
  readonly onPoint: (tile: Tile | null) => void;
}

function Tiles({ kind: { kind, tiles }, within, whole, picked, onPick, onPoint }: TilesProps) {
  const scheme = usePage((page) => page.scheme);
  if (!within) return null;
  const background = MEMORY_KINDS[kind].color[scheme];
  const rects = squarify(
    tiles.map((tile) => tile.bytes),
    within,
  );
  return tiles.map((tile, at) => {
    const { x: left = 0, y: top = 0, width = 0, height = 0 } = rects[at] ?? {};
    const legible = width >= TEXT_FROM_PX.width && height >= TEXT_FROM_PX.height;
    const { owner } = tile;
    const inside = legible && (
      <>
        <b>{onTile(tileTitle(tile)) || MEMORY_KINDS[kind].word}</b> <span>{bytes(tile.bytes)}</span>
      </>
    );
    const named = {
      tabIndex: legible ? 0 : -1,
      "aria-label": tileName(tile, whole),
      "data-legible": legible || undefined,
    };
    return (
      <li
        key={at}
        title={tileName(tile, whole)}
        style={{ left, top, width, height, background, color: textOn(background) }}
        onPointerEnter={() => onPoint(tile)}
        onFocus={() => onPoint(tile)}
        onBlur={() => onPoint(null)}
        onPointerLeave={() => onPoint(null)}
      >
        {owner && canBePicked(tile) ? (
          <button type="button" {...named} aria-pressed={owner === picked} onClick={() => onPick(owner)}>
            {inside}
          </button>
        ) : (
          <div role="note" {...named}>
            {inside}
          </div>
        )}
      </li>
    );
  });
}
