// Starts a page of sections.
for (const element of document.querySelectorAll("[data-chart]")) draw(element, BUILDERS, {});
