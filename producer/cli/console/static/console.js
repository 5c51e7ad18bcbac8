"use strict";
// Replaces the parts of the page that change, unless the reader works in one or has paused it.
(() => {
  const main = document.querySelector("main");
  const button = document.getElementById("updates");
  const every = Number(main.dataset.refreshMs);
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
        const answer = await fetch(location.href, {headers: {Accept: "text/html"}});
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
