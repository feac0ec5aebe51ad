// SPDX-License-Identifier: MIT

package stress

// watchVerbs are steps with descriptors that are watched.
var watchVerbs = []*verb{
	{"watch", []string{"watch", "mode"}, 1, makeWatch, (*worker).watchStep},
	{"poke", []string{"watch", "n"}, 8, func(g *generator) []int { return []int{g.slot(), g.bytes()} }, (*worker).pokeStep},
	{"change", []string{"watch", "mode", "n"}, 2, func(g *generator) []int {
		return append(makeWatch(g), g.bytes())
	}, (*worker).changeStep},
	{"replace", []string{"watch", "mode", "n", "kept"}, 2, func(g *generator) []int {
		return append(makeWatch(g), g.bytes(), g.IntN(2))
	}, (*worker).replaceStep},
	{"unwatch", []string{"watch"}, 1, func(g *generator) []int { return []int{g.slot()} }, (*worker).unwatchStep},
	{"unwatchunder", []string{"watch", "n"}, 1, func(g *generator) []int { return []int{g.slot(), g.bytes()} }, (*worker).unwatchUnderStep},
}

func makeWatch(g *generator) []int { return []int{g.slot(), g.IntN(3)} }

// watch returns the watch in a slot, and makes one if the slot is empty.
func (a *worker) watch(slot, mode int) Watch {
	if a.watches[slot] == nil {
		w, err := a.p.w.Watch(mode)
		a.done(1)
		if err != nil {
			a.refused("watch", err)
			return nil
		}
		a.watches[slot] = w
	}
	return a.watches[slot]
}

func (a *worker) unwatch(slot int) {
	if w := a.watches[slot]; w != nil {
		a.watches[slot] = nil
		a.check("unwatch", w.Close())
		a.done(1)
	}
}

// watchStep closes a watched descriptor and watches another one, which may get the same
// number.
func (a *worker) watchStep(x []int) {
	a.unwatch(x[0])
	a.watch(x[0], x[1])
}

func (a *worker) unwatchStep(x []int) { a.unwatch(x[0]) }

// pokeStep causes an event and waits for its report.
func (a *worker) pokeStep(x []int) {
	if w := a.watch(x[0], 0); w != nil {
		a.check("poke", w.Poke(x[1]))
		w.Seen()
		a.done(2)
	}
}

// changeStep changes the mode while an event is pending.
func (a *worker) changeStep(x []int) {
	if w := a.watch(x[0], 0); w != nil {
		a.check("poke", w.Poke(x[2]))
		a.check("change", w.Change(x[1]))
		w.Seen()
		a.done(3)
	}
}

// replaceStep watches another descriptor under the number of one with a pending event.
func (a *worker) replaceStep(x []int) {
	w := a.watch(x[0], 0)
	if w == nil {
		return
	}
	next, err := w.Replace(x[1], x[2], x[3] != 0)
	a.done(3)
	if a.watches[x[0]] = next; err != nil {
		a.watches[x[0]] = nil
		a.refused("replace", err)
	}
}

// unwatchUnderStep ends a watch while an event is pending.
func (a *worker) unwatchUnderStep(x []int) {
	if w := a.watch(x[0], 0); w != nil {
		a.check("poke", w.Poke(x[1]))
		a.unwatch(x[0])
	}
}
