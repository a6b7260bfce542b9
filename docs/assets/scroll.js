// A table that is wider than its page scrolls by itself; this lets the keyboard scroll it, too.
(() => {
  const reach = () => {
    for (const box of document.querySelectorAll(".md-typeset__scrollwrap, .md-typeset pre > code")) {
      if (box.scrollWidth > box.clientWidth) box.setAttribute("tabindex", "0");
      else box.removeAttribute("tabindex");
    }
  };
  window.addEventListener("load", () => setTimeout(reach));
  window.addEventListener("resize", reach);
})();
