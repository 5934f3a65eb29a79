// Reads the packed parts of the page: text that was compressed with gzip and written in base64.
async function unpack(id) {
  const bytes = Uint8Array.from(atob(document.getElementById(id).textContent), (letter) => letter.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
}

(0, eval)(await unpack("library")); // defines `echarts`
document.documentElement.classList.add("interactive"); // shows the places of the figures, which must have a size to be drawn
