// Loads the page again every few seconds, and exchanges the parts of it that have changed.
"use strict";

const EVERY = 5000;
const lost = document.getElementById("lost");

function exchange(fresh) {
  for (const part of document.querySelectorAll("[data-live]")) {
    const next = fresh.getElementById(part.id);
    // Whoever reads a part with the keyboard must not lose the place.
    if (next && next.innerHTML !== part.innerHTML && !part.contains(document.activeElement)) {
      part.replaceChildren(...next.childNodes);
    }
  }
  document.title = fresh.title;
}

async function refresh() {
  if (!document.hidden) {
    try {
      const answer = await fetch(location.pathname, { redirect: "manual", signal: AbortSignal.timeout(15000) });
      if (answer.type === "opaqueredirect") {
        location.reload(); // the session has ended
        return;
      }
      lost.hidden = answer.ok;
      if (answer.ok) exchange(new DOMParser().parseFromString(await answer.text(), "text/html"));
    } catch {
      lost.hidden = false;
    }
  }
  setTimeout(refresh, EVERY);
}

setTimeout(refresh, EVERY);
