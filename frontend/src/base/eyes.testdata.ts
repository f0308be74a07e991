// How colours look to eyes that see red and green, and to those that do not.

import type { Scheme } from "./causes";

type Colour = [number, number, number];

function linear(colour: string): Colour {
  return [1, 3, 5].map((at) => {
    const value = Number.parseInt(colour.slice(at, at + 2), 16) / 255;
    return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  }) as Colour;
}

// Machado, Oliveira and Fernandes (2009), full severity, on linear RGB.
const EYES: Record<string, Colour[]> = {
  usual: [
    [1, 0, 0],
    [0, 1, 0],
    [0, 0, 1],
  ],
  "red-blind": [
    [0.152286, 1.052583, -0.204868],
    [0.114503, 0.786281, 0.099216],
    [-0.003882, -0.048116, 1.051998],
  ],
  "green-blind": [
    [0.367322, 0.860646, -0.227968],
    [0.280085, 0.672501, 0.047413],
    [-0.01182, 0.04294, 0.968881],
  ],
};

/** Oklab: equal distances look about equally different. */
function oklab([r, g, b]: Colour): Colour {
  const cone = (x: number, y: number, z: number) => Math.cbrt(Math.max(0, x * r + y * g + z * b));
  const l = cone(0.4122214708, 0.5363325363, 0.0514459929);
  const m = cone(0.2119034982, 0.6806995451, 0.1073969566);
  const s = cone(0.0883024619, 0.2817188376, 0.6299787005);
  return [
    0.2104542553 * l + 0.793617785 * m - 0.0040720468 * s,
    1.9779984951 * l - 2.428592205 * m + 0.4505937099 * s,
    0.0259040371 * l + 0.7827717662 * m - 0.808675766 * s,
  ];
}

function seen(colour: string, eyes: Colour[]): Colour {
  const from = linear(colour);
  return oklab(
    eyes.map((row) => row.reduce((sum, factor, at) => sum + factor * (from[at] ?? 0), 0)) as Colour,
  );
}

/** How different two colours look to eyes of this kind. */
export function distance(a: string, b: string, eyes: string): number {
  const [first, second] = [a, b].map((colour) => seen(colour, EYES[eyes] ?? [])) as [Colour, Colour];
  return Math.hypot(...first.map((value, at) => value - (second[at] ?? 0)));
}

/** In Oklab about 0.02 is just noticeable side by side; small boxes need more. */
export const CLEAR = 0.06;

/** Every kind of eyes with every theme, for it.each. */
export const LOOKS = Object.keys(EYES).flatMap((eyes) =>
  (["light", "dark"] as Scheme[]).map((scheme) => [eyes, scheme] as const),
);
