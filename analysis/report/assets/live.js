// Says how old the page is, and loads it again when a newer one should be there. The last page of a sweep has no such script.
const live = document.getElementById("live");
const written = Number(live.dataset.written);
const every = Number(live.dataset.seconds);
const opened = Date.now() / 1000;
const pause = Math.min(60, Math.max(5, (opened - written) / 4)); // a page that is not written any more is asked for less often
let touched = 0; // when the user did something last
for (const kind of ["keydown", "pointerdown", "wheel"]) addEventListener(kind, () => { touched = Date.now() / 1000; }, { capture: true, passive: true });

function ageText(seconds) {
  const [value, unit] = seconds < 120 ? [seconds, "second"] : seconds < 7200 ? [seconds / 60, "minute"] : [seconds / 3600, "hour"];
  return `${Math.round(value)} ${unit}${Math.round(value) === 1 ? "" : "s"} ago`;
}

function look() {
  const now = Date.now() / 1000;
  const age = Math.max(0, now - written);
  document.getElementById("age").textContent = `${new Date(1000 * written).toLocaleTimeString()}, ${ageText(age)}`;
  document.getElementById("stale").hidden = age < 6 * every;
  if (age > every + 2 && now > opened + pause && now > touched + 2 && !document.hidden) location.reload();
}
look();
setInterval(look, 1000);
