// SPDX-License-Identifier: MIT

package stress

import (
	"math/rand/v2"
	"strings"
	"testing"
)

func TestTextAndBack(t *testing.T) {
	for seed := range uint64(10) {
		s := Generate("any", seed, Size{20, 20}, func(rng *rand.Rand) Settings {
			return Settings{"short": rng.Float64(), "pinned": 1}
		})
		text := s.String()
		back, err := Parse(strings.NewReader(text))
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if got := back.String(); got != text {
			t.Fatalf("read back:\n%s\nwant\n%s", got, text)
		}
		if again := Generate("any", seed, Size{20, 20}, func(rng *rand.Rand) Settings {
			return Settings{"short": rng.Float64(), "pinned": 1}
		}).String(); again != text {
			t.Fatalf("seed %d makes two scenarios", seed)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	const head = "scenario sim seed 1\nworker 3\n"
	for text, want := range map[string]string{
		"":                                "no line says",
		"scenario sim seed x":             "line 1",
		"scenario sim seed 1\nhangup c=1": "before the first worker",
		head + "hangup":                   "arguments",
		head + "hangup c=1":               "in the place of conn",
		head + "hangup conn=-1":           "in the place of conn",
		head + "hangup conn=":             "in the place of conn",
		head + "jump conn=1":              "no such step",
		head + "set short much":           "line 3",
	} {
		if _, err := Parse(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want an error with %q", text, err, want)
		}
	}
	s, err := Parse(strings.NewReader("\n# a comment\n" + head + "  hangup conn=2 # another\nset short 0.5"))
	if err != nil || s.Steps() != 1 || s.Workers[0].Number != 3 || s.Settings["short"] != 0.5 {
		t.Errorf("%+v, %v", s, err)
	}
}

// FuzzParse parses texts; a text that makes a scenario is written and parsed again.
func FuzzParse(f *testing.F) {
	f.Add(Generate("any", 1, Size{3, 5}, func(*rand.Rand) Settings { return Settings{"a": 1.5} }).String())
	f.Add("scenario x seed 1\nworker 1\nhangup conn=1")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := Parse(strings.NewReader(text))
		if err != nil {
			return
		}
		again, err := Parse(strings.NewReader(s.String()))
		if err != nil || again.String() != s.String() {
			t.Errorf("%q becomes %q, %v", text, s, err)
		}
	})
}
