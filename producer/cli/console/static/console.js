"use strict";
// Replaces the parts of the page that change, unless the focus is in one or updates are paused.
// A page that reads a topic names another page, which has the same head and is cheap.
(() => {
  const main = document.querySelector("main");
  const button = document.getElementById("updates");
  const every = Number(main.dataset.refreshMs);
  const source = main.dataset.refreshPath || location.href;
  let paused = false;

  button.hidden = false;
  button.addEventListener("click", () => {
    paused = !paused;
    button.textContent = paused ? "Resume updates" : "Pause updates";
    button.setAttribute("aria-pressed", String(paused));
  });

  async function refresh() {
    if (!paused && !document.hidden) {
      try {
        const answer = await fetch(source, {headers: {Accept: "text/html"}});
        if (answer.status === 401) { location.assign("/"); return; }
        if (answer.ok) { replace(await answer.text()); }
        document.body.classList.toggle("away", !answer.ok);
      } catch {
        document.body.classList.add("away");
      }
    }
    setTimeout(refresh, every);
  }

  function replace(text) {
    const page = new DOMParser().parseFromString(text, "text/html");
    for (const part of document.querySelectorAll("[data-live]")) {
      const next = page.getElementById(part.id);
      if (next && next.innerHTML !== part.innerHTML && !part.contains(document.activeElement)) {
        part.innerHTML = next.innerHTML;
      }
    }
  }

  if (document.querySelector("[data-live]")) { setTimeout(refresh, every); }
})();
