"""Figures of docs/explore.md: python tests/explore_clicks.py PAGE ... opens pages in headless Chromium, a row for each.

Needs Chromium and `pip install selenium`. For some examples, every head is switched off and on again: milliseconds from
a click to the end of its work, and to the next frame, the median and the 95th percentile.
"""

import json
import sys
from pathlib import Path

import numpy as np
from selenium import webdriver

EXAMPLES = 6
CLICKS = """
const done = arguments[arguments.length - 1];
const frame = () => new Promise((then) => requestAnimationFrame(() => setTimeout(then)));
(async () => {
  const times = [], examples = [...document.querySelectorAll("#examples button")].slice(0, arguments[0]);
  for (const example of examples) {
    example.click();
    await frame();
    for (const tick of document.querySelectorAll("input[type=checkbox]")) {
      for (const _ of ["off", "on"]) {
        const start = performance.now();
        tick.click();
        const worked = performance.now();
        await frame();
        times.push([worked - start, performance.now() - start]);
      }
    }
  }
  done(times);
})();
"""


def main(pages: list[str]) -> None:
    options = webdriver.ChromeOptions()
    for option in ("headless=new", "no-sandbox", "window-size=1200,900"):
        options.add_argument(f"--{option}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = webdriver.Chrome(options=options)
    browser.set_script_timeout(300)
    row("page", "MB", "clicks", "work, ms", "95 %", "to the next frame, ms", "95 %", "console messages")
    row(*["---"] * 8)
    for page in map(Path, pages):
        browser.get(page.resolve().as_uri())
        times = np.array(browser.execute_async_script(CLICKS, EXAMPLES))
        cells = [f"{np.percentile(column, q):.0f}" for column in times.T for q in (50, 95)]
        said = browser.get_log("browser")
        size = f"{page.stat().st_size / 1e6:.2f}"
        row(page.name, size, f"{len(times):,}", *cells, str(len(said)))
        for each in said:
            print(json.dumps(each), file=sys.stderr)  # noqa: T201
    browser.quit()


def row(*cells: str) -> None:
    print("| " + " | ".join(cells) + " |", flush=True)  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1:])
