// What an element shows as a picture: SVG with the page's own styles, or PNG.

import { fileName, saveFile } from "../../base/save";

/** Pixels of a PNG for each pixel of the page. */
const SCALE = 2;

const XHTML = "http://www.w3.org/1999/xhtml";

export type PictureFormat = "png" | "svg";

/** Return an SVG of an element. What is drawn on a canvas becomes a bitmap in it; texts stay texts. */
export function svgOf(element: HTMLElement): string {
  const { width, height } = element.getBoundingClientRect();
  const copy = element.cloneNode(true) as HTMLElement;
  const drawn = copy.querySelectorAll("canvas");
  for (const [at, canvas] of [...element.querySelectorAll("canvas")].entries()) {
    const image = document.createElement("img");
    image.className = canvas.className;
    image.style.cssText = canvas.style.cssText;
    image.style.width = `${canvas.clientWidth}px`;
    image.style.height = `${canvas.clientHeight}px`;
    image.src = canvas.toDataURL();
    drawn[at]?.replaceWith(image);
  }
  copy.style.width = `${width}px`;
  copy.style.boxSizing = "border-box";
  const body = document.createElementNS(XHTML, "body");
  body.className = document.body.className;
  body.style.margin = "0";
  const style = document.createElementNS(XHTML, "style");
  style.textContent = rules();
  body.append(style, copy);
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  for (const { name, value } of document.documentElement.attributes) svg.setAttribute(name, value);
  svg.setAttribute("width", String(width));
  svg.setAttribute("height", String(height));
  svg.style.background = background();
  const inside = document.createElementNS("http://www.w3.org/2000/svg", "foreignObject");
  inside.setAttribute("width", "100%");
  inside.setAttribute("height", "100%");
  inside.append(body);
  svg.append(inside);
  return new XMLSerializer().serializeToString(svg);
}

/** Save a picture of an element. */
export async function savePicture(element: HTMLElement, name: string, format: PictureFormat): Promise<void> {
  const svg = svgOf(element);
  const blob =
    format === "svg"
      ? new Blob([svg], { type: "image/svg+xml" })
      : await pngOf(svg, element.getBoundingClientRect());
  saveFile(`${fileName(name)}.${format}`, blob);
}

async function pngOf(svg: string, { width, height }: DOMRect): Promise<Blob> {
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`;
  await image.decode();
  const canvas = document.createElement("canvas");
  canvas.width = Math.round(width * SCALE);
  canvas.height = Math.round(height * SCALE);
  canvas.getContext("2d")?.drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((resolve, reject) => {
    canvas.toBlob((blob) => {
      if (blob) resolve(blob);
      else reject(new Error("The browser cannot make this picture"));
    });
  });
}

/** All rules of the page's own style sheets. Those of the root are the SVG's, too. */
function rules(): string {
  return [...document.styleSheets]
    .flatMap((sheet) => [...sheet.cssRules])
    .map((rule) => rule.cssText)
    .join("\n");
}

function background(): string {
  return getComputedStyle(document.body).backgroundColor;
}
