// Texts and columns of whole numbers as embedded_events.py packs them.

function bytesOf(text: string): Response {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip")));
}

export function unpackedJson(text: string): Promise<unknown> {
  return bytesOf(text).json() as Promise<unknown>;
}

const BITS = 128;

export async function unpackedColumn(text: string): Promise<Float64Array> {
  const bytes = new Uint8Array(await bytesOf(text).arrayBuffer());
  let count = 0;
  for (const byte of bytes) if (byte < BITS) count++;
  const found = new Float64Array(count);
  let [at, value, scale] = [0, 0, 1];
  for (const byte of bytes) {
    // Not with shifts: they have 32 bits.
    value += (byte % BITS) * scale;
    scale *= BITS;
    if (byte >= BITS) continue;
    found[at++] = value % 2 === 0 ? value / 2 : -(value + 1) / 2;
    [value, scale] = [0, 1];
  }
  return found;
}

/** Turn differences into the numbers themselves. */
export function summed(differences: Float64Array): Float64Array {
  let sum = 0;
  return differences.map((difference) => (sum += difference));
}
