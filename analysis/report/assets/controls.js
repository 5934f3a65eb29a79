// The choices of a figure's controls.
function fillControls(element) {
  const settings = JSON.parse(element.dataset.settings || "{}");
  const names = sweep.axes.map((one) => one.name);
  const isNew = sweep.curves.every((curve) => !curve.length); // then each metric may come
  const choices = {
    show: ["score", ...Object.keys(EPOCH_METRICS).filter((name) => isNew || sweep.epochs.some((one) => one[name]))],
    by: ["state", ...names],
    over: [...names, ...sweep.columns.filter((one) => one.title && trials[one.name].some((value) => value !== null)).map((one) => one.name)],
  };
  for (const select of element.querySelectorAll("select[name]")) {
    for (const name of choices[select.name]) select.add(new Option(titleOf(name), name));
    if (choices[select.name].includes(settings[select.name])) select.value = settings[select.name];
  }
  for (const box of element.querySelectorAll("input[type=checkbox]")) box.checked = Boolean(settings[box.name]);
}
