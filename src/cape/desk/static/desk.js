// Small helpers; every page works without them. No library but htmx, nothing from elsewhere.
"use strict";

// A file that is chosen is read here, into the text field that the form sends.
document.addEventListener("change", event => {
  const from = event.target;
  if (!(from instanceof HTMLInputElement) || !from.dataset.into || !from.files.length) return;
  from.files[0].text().then(text => {
    const into = document.getElementById(from.dataset.into);
    into.value = text.slice(0, 65536);
    into.dispatchEvent(new Event("input", {bubbles: true}));
  });
});

// What a person has begun to write or to open must not be replaced by fresh content.
function busy(part) {
  const typed = [...part.querySelectorAll("textarea, input:not([type=hidden])")].some(field =>
    field.type === "checkbox" || field.type === "radio" ? field.checked !== field.defaultChecked : field.value !== field.defaultValue);
  return typed || part.querySelector("details.act[open]") !== null;
}

// Events of the site: each is said in one sentence, and the part of the page that is marked as live is fetched again.
function listen(address) {
  const heard = document.getElementById("heard");
  const source = new EventSource(address);
  source.addEventListener("site", event => {
    const told = JSON.parse(event.data);
    const part = document.getElementById("live");
    const line = document.createElement("p");
    line.className = "said";
    const end = /[.!?]$/.test(told.sentence) ? "" : ".";
    line.textContent = `${told.sentence[0].toUpperCase()}${told.sentence.slice(1)}${end}`;
    if (part && part.dataset.of.split(" ").includes(told.kind)) {
      if (busy(part)) {
        const link = document.createElement("a");
        link.href = location.href;
        link.textContent = " Show it (what you wrote here is lost).";
        line.append(link);
      } else {
        htmx.ajax("GET", location.href, {source: part, target: part, select: "#live", swap: "outerHTML"});
      }
    }
    heard.replaceChildren(line);
  });
  addEventListener("pagehide", () => source.close());
}
addEventListener("DOMContentLoaded", () => {
  const address = document.body.dataset.live;
  if (address && window.EventSource) listen(address);
});
