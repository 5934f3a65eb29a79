// Starts a page with a single figure.
for (const element of document.querySelectorAll("[data-chart]")) {
  fillControls(element);
  draw(element, BUILDERS, {});
}
