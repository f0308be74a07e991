import { vi } from "vitest";

/** Keep the files that the page saves. Return what they contain, without the mark that spreadsheets want. */
export function savedFiles(): () => Promise<string[]> {
  const saved: Blob[] = [];
  vi.spyOn(URL, "createObjectURL").mockImplementation((content) => {
    saved.push(content as Blob);
    return "blob:saved";
  });
  vi.spyOn(HTMLAnchorElement.prototype, "click").mockReturnValue();
  return async () => {
    const texts = await Promise.all(saved.map((content) => content.text()));
    return texts.map((text) => text.replace("\uFEFF", ""));
  };
}
