// SPDX-License-Identifier: MIT

package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

// answerLines is the greatest number of lines of an answer.
const answerLines = 15

// Answer returns the findings of the run in words: a summary, gains from the greatest, losses, what
// makes no difference, and what is open with the command that decides it. It has at most fifteen
// lines, and none if there is nothing to compare.
func (r *Run) Answer() []string {
	claims := r.Claims()
	if len(claims) == 0 {
		return nil
	}
	var out []string
	groups := groupsOf(claims)
	gains, losses := lines(groups, Gain), lines(groups, Loss)
	none := alikeLine(groups)
	open := openLines(claims)
	room := answerLines - 1 - len(none)
	open = shorten(open, max(1, min(len(open), room-len(gains)-len(losses))), "open")
	losses = shorten(losses, max(3, min(len(losses), room-len(open)-len(gains))), "lose")
	gains = shorten(gains, room-len(open)-len(losses), "gain")
	return slices.Concat(append(out, Summary(claims)), gains, losses, none, open)
}

// shorten keeps n lines, and says how many follow.
func shorten(lines []string, n int, kind string) []string {
	if len(lines) <= n {
		return lines
	}
	return append(slices.Clone(lines[:n-1]), fmt.Sprintf("%-5s%d more: --tables shows all", kind, len(lines)-n+1))
}

// Summary counts the claims of each kind in a sentence.
func Summary(claims []Claim) string {
	n := map[string]int{}
	for _, c := range claims {
		n[c.Kind]++
	}
	say := func(n int, one, many string) string {
		if n == 1 {
			return "1 " + one
		}
		return fmt.Sprintf("%d %s", n, many)
	}
	return fmt.Sprintf("Of %s %s, %s, %s, %s.", counted("question")(len(claims)), say(n[Gain], "gains", "gain"),
		say(n[Loss], "loses", "lose"), say(n[None], "makes no difference", "make no difference"), say(n[Open], "is open", "are open"))
}

// claimGroup is the claims of one kind about one choice and one workload.
type claimGroup struct {
	Claim
	claims []Claim
}

func groupsOf(claims []Claim) (out []claimGroup) {
	for _, c := range claims {
		i := slices.IndexFunc(out, func(g claimGroup) bool {
			return g.Kind == c.Kind && g.Use == c.Use && g.Instead == c.Instead && g.Workload == c.Workload
		})
		if i < 0 {
			i = len(out)
			out = append(out, claimGroup{Claim: c})
		}
		out[i].claims = append(out[i].claims, c)
	}
	return out
}

// effect is the size of a claim's difference: of the rate, or of CPU time if that decided.
func (c Claim) effect() float64 {
	if !c.byCPU() {
		return math.Abs(math.Log(c.Rate.Ratio))
	}
	return math.Abs(math.Log(c.CPU.Ratio)) / 4
}

// lines returns a line for each group of a kind, the greatest difference first.
func lines(groups []claimGroup, kind string) (out []string) {
	groups = slices.DeleteFunc(slices.Clone(groups), func(g claimGroup) bool { return g.Kind != kind })
	for _, g := range groups {
		slices.SortStableFunc(g.claims, func(a, b Claim) int { return cmp.Compare(b.effect(), a.effect()) })
	}
	slices.SortStableFunc(groups, func(a, b claimGroup) int { return cmp.Compare(b.claims[0].effect(), a.claims[0].effect()) })
	for _, g := range groups {
		common, rest := g.words()
		var said []string
		for i, c := range g.claims {
			said = append(said, strings.TrimSpace(rest[i]+" "+c.ratios()))
		}
		out = append(out, fmt.Sprintf("%-5s%s instead of %s, %s: %s", kind, g.Use, g.Instead, common, strings.Join(said, ", ")))
	}
	return out
}

// words returns the words that all points of a group share, and the other words of each.
func (g claimGroup) words() (common string, rest []string) {
	points := make([][]string, len(g.claims))
	for i, c := range g.claims {
		points[i] = strings.Split(c.Point, ", ")
	}
	shared := slices.DeleteFunc(slices.Clone(points[0]), func(w string) bool {
		return slices.ContainsFunc(points, func(p []string) bool { return !slices.Contains(p, w) })
	})
	for _, p := range points {
		rest = append(rest, strings.Join(slices.DeleteFunc(p, func(w string) bool { return slices.Contains(shared, w) }), " "))
	}
	return strings.Join(shared, ", "), rest
}

// ratios describes the rate with its interval, CPU time if it differs, and latency if it is worse by
// more than a tenth.
func (c Claim) ratios() string {
	text := c.Rate.String()
	var more []string
	if c.byCPU() {
		text = "CPU " + c.CPU.String()
		more = append(more, "at a rate of "+c.Rate.String())
	} else if c.cpuTold && !c.CPU.alike() {
		more = append(more, fmt.Sprintf("CPU %.2f", c.CPU.Ratio))
	}
	if c.P99.known() && c.P99.Low > 1+minSaving {
		more = append(more, fmt.Sprintf("p99 %.1fx", c.P99.Ratio))
	}
	if len(more) > 0 {
		text += " " + strings.Join(more, " ")
	}
	return text
}

// minSaving is the share by which latency must be worse to be mentioned.
const minSaving = 0.1

// String returns the ratio and its interval.
func (i Interval) String() string {
	if !i.bounded() {
		return fmt.Sprintf("%.2fx", i.Ratio)
	}
	return fmt.Sprintf("%.2fx (%.2f–%.2f)", i.Ratio, i.Low, i.High)
}

// alikeLine returns the line about what makes no difference, if there is any.
func alikeLine(groups []claimGroup) []string {
	var said []string
	for _, g := range groups {
		if g.Kind != None {
			continue
		}
		common, rest := g.words()
		if rest = slices.DeleteFunc(rest, func(s string) bool { return s == "" }); len(rest) > 0 {
			common += " " + strings.Join(rest, ", ")
		}
		said = append(said, fmt.Sprintf("%s, %s", g.Use, common))
	}
	if len(said) == 0 {
		return nil
	}
	return []string{"same within 5 %: " + strings.Join(said, "; ")}
}

// openLines returns a line for each open claim, the most interesting first.
func openLines(claims []Claim) (out []string) {
	claims = slices.DeleteFunc(slices.Clone(claims), func(c Claim) bool { return c.Kind != Open })
	slices.SortStableFunc(claims, func(a, b Claim) int { return cmp.Compare(b.effect(), a.effect()) })
	for _, c := range claims {
		between := "too few starts to tell"
		if c.Rate.bounded() {
			between = fmt.Sprintf("between %.2f and %.2f times as many", c.Rate.Low, c.Rate.High)
		}
		out = append(out, fmt.Sprintf("%-5s%s instead of %s, %s: %s; %s", Open, c.Use, c.Instead, c.Point, between, c.Command()))
	}
	return out
}
