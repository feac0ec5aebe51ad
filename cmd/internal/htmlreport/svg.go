// SPDX-License-Identifier: MIT

package htmlreport

import (
	"bytes"
	"fmt"
	"html"
	"html/template"
	"image/color"
	"math"
	"regexp"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// width of pictures; they are scaled to the page.
const width = 15 * vg.Centimeter

// newPlot is empty, has no ground of its own and leaves the ink to the page.
func newPlot() *plot.Plot {
	p := plot.New()
	p.BackgroundColor = color.Transparent
	p.Legend.Top = true
	p.Legend.Padding = vg.Points(2)
	return p
}

// inline renders the plot as an element of the page, in the page's ink, with a description.
func inline(p *plot.Plot, height vg.Length, alt string) (template.HTML, error) {
	canvas := vgsvg.New(width, height)
	p.Draw(draw.New(canvas))
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return "", err
	}
	text := b.Bytes()
	if i := bytes.Index(text, []byte("<svg")); i >= 0 {
		text = text[i:] // an XML declaration has no place inside of a page
	}
	head := fmt.Sprintf(`<svg role="img" aria-label="%s" viewBox="0 0 %g %g" fill="currentColor" xmlns="http://www.w3.org/2000/svg">`,
		html.EscapeString(alt), width.Points(), height.Points())
	text = svgHead.ReplaceAllLiteral(text, []byte(head))
	text = bytes.ReplaceAll(text, []byte("#000000"), []byte("currentColor"))
	text = svgText.ReplaceAllFunc(text, fitText)
	return template.HTML(text), nil //nolint:gosec // drawn by us; text is escaped by vgsvg, the description here
}

// fitText has the browser write a text as wide as it was planned, whatever its font is.
func fitText(element []byte) []byte {
	m := svgText.FindSubmatch(element)
	size, err := strconv.ParseFloat(string(m[2]), 64)
	if err != nil {
		return element
	}
	face := font.DefaultCache.Lookup(plot.DefaultFont, vg.Points(size))
	w := face.Width(html.UnescapeString(string(m[3])))
	return fmt.Appendf(nil, `%s textLength="%.1f" lengthAdjust="spacingAndGlyphs">%s</text>`, m[1], w.Points(), m[3])
}

var svgText = regexp.MustCompile(`(<text [^>]*font-size:([0-9.]+)px[^>]*)>([^<]+)</text>`)

var svgHead = regexp.MustCompile(`<svg[^>]*>`)

// palette are colours that differ from each other for most eyes on light and dark ground (Okabe and
// Ito, "Color Universal Design", 2008, without black and yellow).
var palette = []color.RGBA{
	{0x00, 0x72, 0xB2, 0xFF}, {0xD5, 0x5E, 0x00, 0xFF}, {0x00, 0x9E, 0x73, 0xFF},
	{0xCC, 0x79, 0xA7, 0xFF}, {0xE6, 0x9F, 0x00, 0xFF}, {0x56, 0xB4, 0xE9, 0xFF},
}

// grey is for what others are compared to.
var grey = color.RGBA{0x80, 0x86, 0x8C, 0xFF}

// colorOf returns that of the i-th engine; the first one is what others are compared to.
func colorOf(i int) color.RGBA {
	if i == 0 {
		return grey
	}
	return palette[(i-1)%len(palette)]
}

// faint is the colour of a band.
func faint(c color.RGBA) color.Color { return color.NRGBA{c.R, c.G, c.B, 0x33} }

// shortTicks writes numbers of any size in few letters.
type shortTicks struct{ plot.DefaultTicks }

// Ticks returns those of the default with short words.
func (t shortTicks) Ticks(low, high float64) []plot.Tick {
	ticks := t.DefaultTicks.Ticks(low, high)
	for i := range ticks {
		if ticks[i].Label != "" {
			ticks[i].Label = short(ticks[i].Value)
		}
	}
	return ticks
}

// decadeTicks are for logarithmic axes: 1, 2, 5, 10, and so on.
type decadeTicks struct{ suffix string }

// Ticks marks 1, 2 and 5 of each power of ten; where there are many, only the powers have words.
func (t decadeTicks) Ticks(low, high float64) []plot.Tick {
	var out []plot.Tick
	if low <= 0 || math.IsInf(high, 0) || math.IsNaN(high) {
		return nil
	}
	few := high/low < 200
	for p := math.Floor(math.Log10(low)); p <= math.Ceil(math.Log10(high)); p++ {
		for _, m := range []float64{1, 2, 5} {
			v := m * math.Pow(10, p)
			if v < low || v > high {
				continue
			}
			tick := plot.Tick{Value: v}
			if m == 1 || few {
				tick.Label = short(v) + t.suffix
			}
			out = append(out, tick)
		}
	}
	return out
}

// at marks just these values.
func at(values []float64) plot.ConstantTicks {
	var out plot.ConstantTicks
	for _, v := range values {
		out = append(out, plot.Tick{Value: v, Label: short(v)})
	}
	return out
}
