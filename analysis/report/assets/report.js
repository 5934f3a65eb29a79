// Starts the page: the figures, the table of trials and the dialog.
wireDialog();
const section = document.querySelector(".trials");
const table = makeTable(section, showTrial);
for (const element of document.querySelectorAll("[data-chart]")) {
  fillControls(element);
  // A figure is drawn when it comes near the window, so that a page of many trials opens at once.
  new IntersectionObserver((entries, observer) => {
    if (!entries.some((entry) => entry.isIntersecting)) return;
    observer.disconnect();
    draw(element, BUILDERS, { onTrial: showTrial, onBrush: table.brush });
  }, { rootMargin: "300px" }).observe(element);
}
for (const button of document.querySelectorAll("button[data-trial]")) {
  button.addEventListener("click", () => showTrial(trials.trial.indexOf(Number(button.dataset.trial))));
}
