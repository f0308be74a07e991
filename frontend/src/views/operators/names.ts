// Short names of calls: the function first, then its file.

const PYTHON = 3;

const FRAME = /^(.*)\((\d+)\): (.*)$/s;

/** "forward (model.py:7)" for "some/folder/model.py(7): forward"; other names as they are. */
export function shortName(name: string, kind: number): string {
  if (kind !== PYTHON) return name;
  const [, file, line, called] = FRAME.exec(name) ?? [];
  if (file === undefined || line === undefined || called === undefined)
    return name.replace(/^nn\.Module: /, "");
  return `${called} (${file.split(/[/\\]/).at(-1) ?? file}:${line})`;
}

/** Input shapes as they are read: "[[2,8],[],[8]]" is "2×8, ·, 8". */
export function shapesText(json: string): string {
  try {
    const shapes: unknown = JSON.parse(json);
    if (!Array.isArray(shapes)) return json;
    return shapes
      .map((dims: unknown) =>
        Array.isArray(dims) ? (dims.length > 0 ? dims.map(String).join("×") : "·") : "·",
      )
      .join(", ");
  } catch {
    return json;
  }
}
