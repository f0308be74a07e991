/** Save a file that the page makes. */
export function saveFile(name: string, content: Blob): void {
  const url = URL.createObjectURL(content);
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  URL.revokeObjectURL(url);
}

/** A name that every file system takes. */
export function fileName(name: string): string {
  return name.replaceAll(/[^A-Za-z0-9_.-]+/g, "_");
}
