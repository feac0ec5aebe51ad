// SPDX-License-Identifier: MIT

package htmlreport

import (
	"context"
	"encoding/json"
	"fmt"
	"html"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// browser returns the path of a browser that runs without a screen.
func browser(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skip("no browser: needs chromium (Debian: apt-get install chromium)")
	return ""
}

// look is a browser's report on the page.
type look struct {
	Wide     int    `json:"wide"` // how far the content extends beyond the window
	Pictures int    `json:"pictures"`
	Flat     int    `json:"flat"`    // pictures without height
	Outside  int    `json:"outside"` // axis labels outside of their picture
	Overlap  int    `json:"overlap"` // axis values that overlap the one before
	Unseen   int    `json:"unseen"`  // marks without a color
	Small    int    `json:"small"`   // text smaller than 12 pixels
	Ground   string `json:"ground"`
	Ink      string `json:"ink"`
}

// ask makes the page report on itself. Only the copy that the test opens has a script.
const ask = `<pre id="look"></pre><script>
const pictures = [...document.querySelectorAll("svg.curves, table.ranges")], style = getComputedStyle(document.body);
document.querySelectorAll("details").forEach(d => d.open = true);
const words = [...document.querySelectorAll("svg.curves text, .ticks span, th, td, li, p, figcaption, dd")];
const size = e => parseFloat(getComputedStyle(e).fontSize) * (e.ownerSVGElement ? e.ownerSVGElement.getBoundingClientRect().width / e.ownerSVGElement.viewBox.baseVal.width : 1);
const inside = (e, p) => { const a = e.getBoundingClientRect(), b = p.getBoundingClientRect(); return a.left >= b.left - 1 && a.right <= b.right + 1; };
document.getElementById("look").textContent = JSON.stringify({
	wide: document.documentElement.scrollWidth - document.documentElement.clientWidth,
	pictures: pictures.length,
	flat: pictures.filter(p => p.getBoundingClientRect().height < 50).length,
	outside: pictures.reduce((n, p) => n + [...p.querySelectorAll("text, .ticks span")].filter(e => e.getBoundingClientRect().width > 0 && !inside(e, p)).length, 0),
	overlap: pictures.reduce((n, p) => n + [...p.querySelectorAll(".ticks span")].map(e => e.getBoundingClientRect()).filter(r => r.width > 0)
		.filter((r, i, all) => i > 0 && r.left < all[i - 1].right).length, 0),
	unseen: [...document.querySelectorAll(".swatch")].filter(e => getComputedStyle(e).backgroundColor == "rgba(0, 0, 0, 0)").length +
		[...document.querySelectorAll(".line, .bar path")].filter(e => getComputedStyle(e).stroke == "none").length,
	small: words.filter(e => size(e) < 11.95).length,
	ground: style.backgroundColor, ink: style.color,
});
</script></body>`

// TestBrowser opens the page in a browser: on a wide screen with the light scheme, on a
// phone with the dark one.
func TestBrowser(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a browser; left out with -short")
	}
	path := browser(t)
	page := render(t, sample())
	page = regexp.MustCompile(`<meta http-equiv="Content-Security-Policy"[^>]*>`).ReplaceAllLiteralString(page, "")
	page = strings.Replace(page, "</body>", ask, 1)
	file := filepath.Join(t.TempDir(), "report.html")
	if err := os.WriteFile(file, []byte(page), 0o600); err != nil {
		t.Fatal(err)
	}
	light := open(t, path, file, "--window-size=1200,800")
	dark := open(t, path, file, "--window-size=500,800", "--force-dark-mode")
	for _, l := range []look{light, dark} {
		if l.Wide > 0 || l.Pictures < 7 || l.Flat+l.Outside+l.Overlap+l.Unseen+l.Small > 0 || l.Ground == l.Ink {
			t.Errorf("%+v", l)
		}
	}
	if light.Ground == dark.Ground {
		t.Errorf("light and dark look the same: %s", light.Ground)
	}
}

// open opens the file in the browser and returns its report.
func open(t *testing.T, browser, file string, flags ...string) (l look) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	args := append([]string{
		"--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--user-data-dir=" + t.TempDir(), "--dump-dom",
	}, flags...)
	cmd := exec.CommandContext(ctx, browser, append(args, "file://"+file)...)
	cmd.WaitDelay = time.Second // child processes of the browser keep the pipe open
	out, err := cmd.Output()
	m := regexp.MustCompile(`<pre id="look">([^<]*)</pre>`).FindSubmatch(out)
	if m == nil {
		t.Fatalf("%s: %v, and no report in\n%.500s", browser, err, out)
	}
	if err := json.Unmarshal([]byte(html.UnescapeString(string(m[1]))), &l); err != nil {
		t.Fatal(fmt.Errorf("%s: %w", m[1], err))
	}
	return l
}
