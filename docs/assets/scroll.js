// Tables, code and pictures that are wider than the page scroll by themselves; the keyboard can scroll them, too.
(() => {
  const reach = () => {
    for (const box of document.querySelectorAll(".md-typeset__scrollwrap, .md-typeset pre > code, .md-typeset p:has(> img)")) {
      if (box.scrollWidth > box.clientWidth) box.setAttribute("tabindex", "0");
      else box.removeAttribute("tabindex");
    }
  };
  window.addEventListener("load", () => setTimeout(reach));
  window.addEventListener("resize", reach);
})();
