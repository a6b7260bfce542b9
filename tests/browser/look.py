"""What is wrong with a page in a browser: what sticks out, what axe-core finds; empty if all is well."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Page

WIDTHS = (360, 768, 1400)

_STICKS_OUT = """() => {
  const width = document.documentElement.clientWidth;
  const found = [];
  if (document.documentElement.scrollWidth > width)
    found.push(`the page has ${document.documentElement.scrollWidth} pixels, the window ${width}`);
  const seen = {checkOpacity: true, checkVisibilityCSS: true};
  const shown = e => e.checkVisibility(seen) && e.getClientRects().length;
  const name = e => {
    const classes = [...e.classList].map(one => "." + one).join("");
    const label = e.tagName.toLowerCase() + (e.id ? "#" + e.id : "") + classes;
    return `${label} "${(e.textContent || e.alt || "").trim().replace(/\\s+/g, " ").slice(0, 60)}"`;
  };
  const excused = e => {  // what scrolls by itself, what only screen readers see, and closed drawers
    for (let up = e.parentElement; up && up !== document.body; up = up.parentElement) {
      const style = getComputedStyle(up);
      if (["auto", "scroll"].includes(style.overflowX)) return true;
      if (style.position === "fixed" || up.getAttribute("aria-hidden") === "true") return true;
    }
    const style = getComputedStyle(e);
    return style.position === "fixed" || style.clip !== "auto" || e.closest("[hidden], nav, iframe") !== null;
  };
  for (const e of document.body.querySelectorAll("*")) {
    if (!shown(e) || excused(e)) continue;
    const box = e.getBoundingClientRect();
    if (box.width < 2 || box.height < 2) continue;
    if (box.right > width + 1 || box.left < -1) {
      found.push(`${name(e)} is at ${Math.round(box.left)} to ${Math.round(box.right)} of ${width} pixels`);
      continue;
    }
    const style = getComputedStyle(e);
    const own = [...e.childNodes].some(node => node.nodeType === 3 && node.textContent.trim());
    if (own && ["hidden", "clip"].includes(style.overflowX) && e.scrollWidth > e.clientWidth + 1)
      found.push(`${name(e)} is cut off: ${e.scrollWidth} pixels of text in ${e.clientWidth}`);
    if (e instanceof SVGTextElement && e.ownerSVGElement) {
      const frame = e.ownerSVGElement.getBoundingClientRect();
      if (getComputedStyle(e.ownerSVGElement).overflow !== "visible"
          && (box.left < frame.left - 1 || box.right > frame.right + 1
              || box.top < frame.top - 1 || box.bottom > frame.bottom + 1))
        found.push(`${name(e)} is cut off at the edge of its drawing`);
    }
  }
  return found.slice(0, 20);
}"""

_AXE = """async rules => {
  const result = await axe.run(document, {resultTypes: ["violations"], preload: false, rules});
  return result.violations.filter(v => ["serious", "critical"].includes(v.impact)).flatMap(v =>
    v.nodes.slice(0, 5).map(n => `${v.id} (${v.impact}): ${v.help}: ${n.target.join(" ")}: ${n.html}`));
}"""


def sticks_out(page: Page) -> list[str]:
    """Return what is wider than the window, or cut off: a table that scrolls by itself is neither."""
    return page.evaluate(_STICKS_OUT)  # type: ignore[no-any-return]


def barriers(page: Page, axe: Path, *, without: tuple[str, ...] = ()) -> list[str]:
    """Return what axe-core calls serious or critical; `without` names rules that are left out."""
    page.evaluate(axe.read_text(encoding="utf-8"))  # not a script tag: a page may forbid scripts of others
    return page.evaluate(_AXE, {rule: {"enabled": False} for rule in without})  # type: ignore[no-any-return]
