// Paints allocations over time as bands, stacked in order of allocation, and finds the one at a pixel.

import { term } from "../base/terms";
import { MEMORY_KINDS, type Colored, type Scheme } from "../base/vocabulary";
import type { MemoryBands } from "../wire/report";

export interface BandPicture {
  readonly bands: MemoryBands;
  readonly width: number;
  readonly height: number;
  /** Bytes at the top. */
  readonly most: number;
  /** One RGBA color per pixel. */
  readonly pixels: Uint8ClampedArray<ArrayBuffer>;
  /** Of each pixel the band, or one of the numbers below. */
  readonly owner: Int32Array;
}

export const NOTHING = -1;
/** What no band shows: smaller allocations, and memory from before the recording. */
export const REST = -2;

/** A band this high has a darker upper edge. */
const EDGED_PX = 3;

const SHADES = [1, 0.86, 0.94, 0.8] as const;
const EDGE_SHADE = 0.62;

export const REST_COLOR: Readonly<Record<Scheme, string>> = { light: "#d5d9e0", dark: "#3a3f4a" };

/** What a band is for. */
export function kindOf({ kinds, band_kind }: MemoryBands, band: number): Colored {
  return term(MEMORY_KINDS, kinds[band_kind[band] ?? -1] ?? "") ?? MEMORY_KINDS.unknown;
}

/** The most that is allocated in any column. */
export function mostBytes({ rest_bytes, band_from, band_to, band_bytes }: MemoryBands): number {
  const sum = Float64Array.from(rest_bytes);
  band_bytes.forEach((size, band) => {
    for (let column = band_from[band] ?? 0; column < (band_to[band] ?? 0); column++) {
      sum[column] = (sum[column] ?? 0) + size;
    }
  });
  return sum.reduce((a, b) => Math.max(a, b), 1);
}

/** Paint one pixel per column. Each column shows what was live at its moment. */
export function paintBands(bands: MemoryBands, height: number, scheme: Scheme): BandPicture {
  const width = bands.column_us.length;
  const most = mostBytes(bands);
  const pixels = new Uint8ClampedArray(4 * width * height);
  const colors = new Uint32Array(pixels.buffer);
  const owner = new Int32Array(width * height).fill(NOTHING);
  const top = Float64Array.from(bands.rest_bytes);
  const row = (size: number) => Math.round((size / most) * height);
  const fill = (column: number, from: number, to: number, color: number, band: number) => {
    for (let y = from; y < to; y++) {
      const at = (height - 1 - y) * width + column;
      colors[at] = color;
      owner[at] = band;
    }
  };
  const rest = packed(REST_COLOR[scheme], 1);
  for (let column = 0; column < width; column++) fill(column, 0, row(top[column] ?? 0), rest, REST);
  bands.band_bytes.forEach((size, band) => {
    const { color } = kindOf(bands, band);
    const plain = packed(color[scheme], SHADES[(bands.band_site[band] ?? 0) % SHADES.length] ?? 1);
    const edge = packed(color[scheme], EDGE_SHADE);
    const until = bands.band_to[band] ?? 0;
    for (let column = bands.band_from[band] ?? 0; column < until; column++) {
      const begin = top[column] ?? 0;
      top[column] = begin + size;
      const [from, to] = [row(begin), row(begin + size)];
      fill(column, from, to, plain, band);
      if (to - from >= EDGED_PX) fill(column, to - 1, to, edge, band);
    }
  });
  return { bands, width, height, most, pixels, owner };
}

/** The band at a place of the picture, given as shares of its width and height from the upper left. */
export function bandAt({ owner, width, height }: BandPicture, x: number, y: number): number {
  const column = Math.min(Math.max(Math.floor(x * width), 0), width - 1);
  const row = Math.min(Math.max(Math.floor(y * height), 0), height - 1);
  return owner[row * width + column] ?? NOTHING;
}

/** Pack `#rrggbb` as a canvas stores it, made darker. */
function packed(color: string, shade: number): number {
  const part = (at: number) => Math.round(parseInt(color.slice(at, at + 2), 16) * shade);
  return ((255 << 24) | (part(5) << 16) | (part(3) << 8) | part(1)) >>> 0;
}
