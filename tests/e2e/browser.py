"""Pages in headless Chromium."""

import subprocess
from pathlib import Path

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--enable-logging=stderr",
    "--v=0",
)
PROBE = """
<script>
addEventListener("load", () => {
  const scale = text => Math.hypot(text.getCTM().a, text.getCTM().b);
  const size = text => parseFloat(getComputedStyle(text).fontSize) * scale(text);
  parent.postMessage(JSON.stringify({
    images: [...document.images].map(image => image.naturalWidth),
    width: innerWidth,
    content: document.documentElement.scrollWidth,
    smallest: Math.min(...[...document.querySelectorAll(".figures svg text")].map(size)),
    dark: matchMedia("(prefers-color-scheme: dark)").matches,
    paper: getComputedStyle(document.body).backgroundColor,
  }), "*");
});
</script>
"""
# A window has a smallest width, a frame has none.
FRAME = """<!doctype html><pre id="probe"></pre>
<script>
addEventListener("message", event => document.getElementById("probe").textContent = event.data);
</script>
<iframe src="{page}" style="border: 0; width: {width}px; height: 900px"></iframe>
"""


def open_page(
    browser: str, page: Path, profile: Path, *flags: str
) -> subprocess.CompletedProcess[str]:
    command = [browser, *FLAGS, f"--user-data-dir={profile}", *flags, page.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
