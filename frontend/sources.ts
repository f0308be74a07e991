// Which sources a bundle was built from. A bundle that was copied here looks newer than the sources, and may be older.

import { createHash } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const FRONTEND = fileURLToPath(new URL(".", import.meta.url));

/** The line at the beginning of a bundle: it differs if a source differs. */
export function sourcesLine(): string {
  const hash = createHash("sha256");
  const files = readdirSync(join(FRONTEND, "src"), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && !/\.test(data)?\.tsx?$/.test(entry.name))
    .map((entry) => join(entry.parentPath, entry.name))
    .sort();
  for (const file of [...files, join(FRONTEND, "package-lock.json")]) hash.update(readFileSync(file));
  return `/* sources ${hash.digest("hex").slice(0, 16)} */\n`;
}
