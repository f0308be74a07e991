/** Copy text. Browsers offer their clipboard to secure pages only; elsewhere a selection can be copied. */
export async function copyText(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    // The only way on pages without TLS.
    // oxlint-disable-next-line typescript/no-deprecated
    const copied = document.execCommand("copy");
    area.remove();
    return copied;
  }
}
