// Sends files that are dropped on the page to the server of this page, one after another.
const token = document.querySelector('meta[name="gpudiag-drop"]').content;
const said = document.createElement("p");
said.setAttribute("role", "status");
said.style.cssText =
  "position: fixed; bottom: 0; left: 0; right: 0; margin: 0; padding: 0.75rem 1rem; z-index: 10000; " +
  "font: 16px system-ui, sans-serif; background: Canvas; color: CanvasText; border-top: 1px solid; white-space: pre-wrap";

function say(text) {
  said.textContent = text;
  document.body.append(said);
}

async function send(files) {
  const drop = Date.now();
  const refused = [];
  for (const file of files) {
    say(`Taking ${file.name} …`);
    const address = `./drop?drop=${drop}&name=${encodeURIComponent(file.name)}`;
    let answer;
    try {
      answer = await fetch(address, { method: "POST", body: file, headers: { "X-Gpudiag-Drop": token } });
    } catch {
      say(`${file.name}: it could not be sent. Is gpudiag still running?`);
      return;
    }
    if (!answer.ok) {
      refused.push(`${file.name}: ${await answer.text()}`);
    }
  }
  if (refused.length > 0) {
    say([...refused, ...(refused.length < files.length ? ["Reload to see the others."] : [])].join("\n"));
  } else if (files.length > 0) {
    location.replace("./");
  }
}

addEventListener("dragover", (event) => event.preventDefault());
addEventListener("drop", (event) => {
  event.preventDefault();
  void send([...event.dataTransfer.files]);
});
document.getElementById("choose")?.addEventListener("change", (event) => void send([...event.target.files]));
